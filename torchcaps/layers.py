"""Votes and a routing together: layers from capsules to capsules, with any routing in any of them."""

from math import prod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps import routing as routings
from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes, pose_shape
from torchcaps.routing import Routing, Trace, VoteShape
from torchcaps.votes import Competition, Votes, convolutional_votes, dense_votes, shared_votes
from torchcaps.votes.grid import Pair, Window
from torchcaps.votes.norm import NormAxes, VoteNorm


class CapsuleLayer(nn.Module):
    """What all capsule layers share: vote weights, a routing, and the way from capsules to capsules.

    ``routing`` is a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own;
    ``bias`` gives the votes a bias (left
    out: as the routing's paper has it); ``vote_norm`` puts batch norm between votes and routing (Zhao 2020).
    """

    def __init__(
        self,
        in_pose: Pose,
        out_pose: Pose,
        routing: str | type[Routing] | Routing,
        shape: tuple[int | None, int | None],  # children that a parent sees, parents
        *,
        bias: bool | None,
        vote_norm: NormAxes | None,
        convolutional: bool = False,
        fan_in: int | None = None,
    ) -> None:
        super().__init__()
        self.rows, self.columns = pose_shape(in_pose, "in_pose")
        out_rows, self.out_columns = pose_shape(out_pose, "out_pose")
        if self.rows != out_rows:
            raise ValueError(
                f"votes keep the rows of a pose: children of {in_pose} cannot vote for parents of {out_pose}; "
                f"give parents of {self.rows} rows"
            )
        children, parents = shape
        self.vote_shape = VoteShape(
            children, parents, self.rows * self.out_columns, self.columns, fan_in or children or 1, convolutional
        )
        self.routing = routings.create(routing)
        self.routing.attach(self.vote_shape)
        self.with_bias = self.routing.vote_bias if bias is None else bias
        self.vote_norm = None
        if vote_norm is not None:
            self.vote_norm = VoteNorm(vote_norm, children, parents, self.rows * self.out_columns)

    def initialise(self, weight: nn.Parameter) -> None:
        nn.init.normal_(weight, std=self.routing.weight_std(self.vote_shape))

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing."""
        raise NotImplementedError

    def forward(self, capsules: Capsules, *, trace: Trace | None = None) -> Capsules:
        return self.routing(self._normed_votes(capsules), capsules.score, trace=trace)

    def step(self, children: Capsules, parents: Capsules | None = None, *, trace: Trace | None = None) -> Capsules:
        """One step from the parents of the step before, for ``concurrent_routing`` of routings that are
        ``stepwise``."""
        return self.routing.step(self._normed_votes(children), children.score, parents, trace=trace)

    def _normed_votes(self, capsules: Capsules) -> Votes:
        votes = self.votes(capsules)
        return votes if self.vote_norm is None else self.vote_norm(votes)


class DenseCapsules(CapsuleLayer):
    """Every child votes for every parent.

    With ``in_caps=None`` the layer takes any number of children, which share their weights; with ``out_caps=None`` too
    there are as many parents as children (Heinsen 2019, §3.1.1), or as many as a call asks for, told apart by a
    learned direction that each is moved along by its place in the row.

    >>> layer = DenseCapsules(in_caps=6, in_pose=8, out_caps=3, out_pose=16, routing="dynamic")
    >>> layer(Capsules(torch.randn(2, 6, 8))).pose.shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        in_caps: int | None,
        in_pose: Pose,
        out_caps: int | None,
        out_pose: Pose,
        routing: str | type[Routing] | Routing = "dynamic",
        *,
        bias: bool | None = None,
        vote_norm: NormAxes | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        if in_caps is not None and out_caps is None:
            raise ValueError(f"as many parents as children needs in_caps=None; got in_caps={in_caps}, out_caps=None")
        super().__init__(in_pose, out_pose, routing, (in_caps, out_caps), bias=bias, vote_norm=vote_norm)
        self.in_caps, self.out_caps = in_caps, out_caps
        leading = (in_caps or 1, out_caps or 1)
        self.weight = nn.Parameter(torch.empty(*leading, self.columns, self.out_columns))
        self.initialise(self.weight)
        self.bias = nn.Parameter(torch.zeros(*leading, self.rows, self.out_columns)) if self.with_bias else None
        self.spread = None
        if out_caps is None:
            self.spread = nn.Parameter(torch.zeros(1, self.rows, self.out_columns))
            nn.init.normal_(self.spread)

    def votes(self, capsules: Capsules, num_parents: int | None = None) -> Votes:
        check_capsules(capsules, "DenseCapsules")
        if self.in_caps is not None:
            if capsules.pose.shape[-2] != self.in_caps:
                raise ValueError(_name_mismatch(self.in_caps, capsules.pose.shape))
            return dense_votes(capsules.pose, self.weight, self.bias, rows=self.rows)
        weight, bias = self.weight[0], None if self.bias is None else self.bias[0]
        if self.spread is not None:
            parents = capsules.pose.shape[-2] if num_parents is None else num_parents
            if parents < 1:
                raise ValueError(f"routing needs at least one parent; got num_parents={num_parents}")
            # All parents' gradients meet in one weight: they are added up before they are rounded.
            weight = weight.to(_at_least_single(weight)).expand(parents, -1, -1)
            places = torch.linspace(-1.0, 1.0, parents, dtype=weight.dtype, device=weight.device)
            moved = places[:, None, None] * self.spread
            bias = moved if bias is None else bias + moved
        return shared_votes(capsules.pose, weight, bias, rows=self.rows)

    def forward(self, capsules: Capsules, *, num_parents: int | None = None, trace: Trace | None = None) -> Capsules:
        if num_parents is None:
            return super().forward(capsules, trace=trace)
        if self.out_caps is not None:
            raise ValueError(f"this layer has {self.out_caps} parents; num_parents={num_parents} needs out_caps=None")
        votes = self.votes(capsules, num_parents)
        return self.routing(votes if self.vote_norm is None else self.vote_norm(votes), capsules.score, trace=trace)


class ConvCapsules(CapsuleLayer):
    """Maps of capsules to maps of capsules: every parent sees a square field of the children's grid.

    ``competition`` says which parents share out a child: all that see it, at every position (``"image"``), or those of
    each receptive field alone (``"field"``); left out, as the routing's authors have it.

    >>> layer = ConvCapsules(8, (4, 4), 16, (4, 4), kernel_size=3, stride=2, routing="em")
    >>> layer(Capsules(torch.randn(2, 9, 9, 8, 16), torch.zeros(2, 9, 9, 8))).pose.shape
    torch.Size([2, 4, 4, 16, 16])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: Pose,
        out_caps: int,
        out_pose: Pose,
        kernel_size: Pair,
        stride: Pair = 1,
        routing: str | type[Routing] | Routing = "dynamic",
        *,
        padding: Pair = 0,
        dilation: Pair = 1,
        competition: Competition | None = None,
        bias: bool | None = None,
        vote_norm: NormAxes | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        window = Window.of(kernel_size, stride, padding, dilation)
        if vote_norm == "pair" and any(window.padding):
            raise ValueError(
                f"vote_norm='pair' with padding={padding}: pairs at the border would have statistics of fewer votes; "
                f"give vote_norm='component' or padding=0"
            )
        field = window.kernel_size[0] * window.kernel_size[1] * in_caps
        super().__init__(
            in_pose, out_pose, routing, (field, out_caps), bias=bias, vote_norm=vote_norm, convolutional=True
        )
        self.window = window
        self.competition: Competition = self.routing.competition if competition is None else competition
        leading = (*window.kernel_size, in_caps, out_caps)
        self.weight = nn.Parameter(torch.empty(*leading, self.columns, self.out_columns))
        self.initialise(self.weight)
        self.bias = nn.Parameter(torch.zeros(*leading, self.rows, self.out_columns)) if self.with_bias else None

    def votes(self, capsules: Capsules) -> Votes:
        check_capsules(capsules, "ConvCapsules")
        return convolutional_votes(
            capsules.pose,
            self.weight,
            self.bias,
            stride=self.window.stride,
            padding=self.window.padding,
            dilation=self.window.dilation,
            rows=self.rows,
            competition=self.competition,
        )


class ClassCapsules(CapsuleLayer):
    """A map of capsules to one set of parents: each type of child has its weights, shared by all positions.

    ``coordinates`` adds each child's place, scaled by ``coordinate_scale``, to the votes: its row and column to the
    first two elements of the last column of the vote (Hinton 2018).

    >>> layer = ClassCapsules(8, (4, 4), 5, (4, 4), routing="em")
    >>> layer(Capsules(torch.randn(2, 4, 4, 8, 16), torch.zeros(2, 4, 4, 8))).score.shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: Pose,
        out_caps: int,
        out_pose: Pose,
        routing: str | type[Routing] | Routing = "em",
        *,
        coordinates: bool = True,
        coordinate_scale: float = 0.01,
        bias: bool | None = None,
        vote_norm: Literal["component"] | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        super().__init__(in_pose, out_pose, routing, (None, out_caps), bias=bias, vote_norm=vote_norm, fan_in=in_caps)
        if coordinates and self.rows * self.out_columns < 2:
            raise ValueError(f"coordinates need two numbers of the pose; got a pose of {out_pose}")
        self.coordinates, self.coordinate_scale = coordinates, coordinate_scale
        self.weight = nn.Parameter(torch.empty(in_caps, out_caps, self.columns, self.out_columns))
        self.initialise(self.weight)
        shape = (in_caps, out_caps, self.rows, self.out_columns)
        self.bias = nn.Parameter(torch.zeros(shape)) if self.with_bias else None

    def votes(self, capsules: Capsules) -> Votes:
        *_, height, width, types, _ = self._checked(capsules)
        places = None
        if self.coordinates:
            places = grid_coordinates(height, width, self.rows, self.out_columns, like=self.weight)
            places = (self.coordinate_scale * places).repeat_interleave(types, 0)
        pose = capsules.pose.flatten(-4, -2)
        return dense_votes(pose, self.weight, self.bias, rows=self.rows, coordinates=places)

    def forward(self, capsules: Capsules, *, trace: Trace | None = None) -> Capsules:
        votes = self._normed_votes(capsules)
        score = None if capsules.score is None else capsules.score.flatten(-3)
        return self.routing(votes, score, trace=trace)

    def step(self, children: Capsules, parents: Capsules | None = None, *, trace: Trace | None = None) -> Capsules:
        check_capsules(children, "ClassCapsules")
        score = None if children.score is None else children.score.flatten(-3)
        return super().step(Capsules(children.pose, score), parents, trace=trace)

    def _checked(self, capsules: Capsules) -> torch.Size:
        check_capsules(capsules, "ClassCapsules")
        shape = capsules.pose.shape
        if len(shape) < 4 or shape[-2] != self.weight.shape[0]:
            raise ValueError(
                f"this layer takes a map (*b, row, column, {self.weight.shape[0]}, d) of capsules; got {tuple(shape)}"
            )
        return shape


def grid_coordinates(height: int, width: int, rows: int, columns: int, *, like: Tensor) -> Float[Tensor, "i c h"]:
    """What coordinate addition adds to the votes from each position: the row and the column of its centre, counted in
    positions, in the first two elements of the pose's last column (of a vector's last two elements)."""
    dtype = _at_least_single(like)
    row, column = torch.meshgrid(
        torch.arange(height, device=like.device, dtype=dtype) + 0.5,
        torch.arange(width, device=like.device, dtype=dtype) + 0.5,
        indexing="ij",
    )
    places = like.new_zeros(height * width, rows, columns, dtype=dtype)
    if rows > 1:
        places[:, 0, -1], places[:, 1, -1] = row.flatten(), column.flatten()
    else:
        places[:, 0, -2], places[:, 0, -1] = row.flatten(), column.flatten()
    return places


def _name_mismatch(children: int, shape: torch.Size) -> str:
    message = f"this layer takes {children} children; got poses of shape {tuple(shape)}"
    if len(shape) >= 4 and prod(shape[-4:-1]) == children:
        return f"{message}, a map of as many: give it flatten_grid(capsules)"
    return message


def _at_least_single(tensor: Tensor) -> torch.dtype:
    """The number type that routing works in."""
    return torch.promote_types(tensor.dtype, torch.float32)
