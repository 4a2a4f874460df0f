"""Votes and a routing together: layers from capsules to capsules, with any routing in any of them."""

from math import prod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps import routing as routings
from torchcaps.capsules import Capsules, Pair, Pose, check_capsules, check_sizes, pose_shape
from torchcaps.parameters import Device, Factory, reset_children
from torchcaps.routing import Routing, Trace, VoteShape
from torchcaps.votes import Competition, Votes, convolutional_votes, dense_votes, shared_votes
from torchcaps.votes.grid import Window
from torchcaps.votes.norm import NormAxes, VoteNorm

__all__ = ["CapsuleLayer", "ClassCapsules", "ConvCapsules", "DenseCapsules"]


class CapsuleLayer(nn.Module):
    """What all capsule layers share: vote weights, a routing, and the way from capsules to capsules.

    Args:
        in_caps: child capsules, of each position where there is a grid; ``None`` for any number.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules, of each position where there is a grid; ``None`` for as many as children.
        out_pose: pose of a parent; of as many rows as a child's.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        field: children that a parent sees; ``None`` for any number.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, of each ``"pair"`` of
            capsules, or none.
        convolutional: whether the layer is a convolution.
        fan_in: weights that meet in one parent; left out, the field.
        device: where the parameters are made.
        dtype: number type of the parameters.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    offset: nn.Parameter | None  # of layers with as many parents as children

    def __init__(
        self,
        in_caps: int | None,
        in_pose: Pose,
        out_caps: int | None,
        out_pose: Pose,
        routing: str | type[Routing] | Routing,
        *,
        field: int | None,
        bias: bool | None,
        vote_norm: NormAxes | None,
        convolutional: bool = False,
        fan_in: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.rows, self.columns = pose_shape(in_pose, "in_pose")
        out_rows, self.out_columns = pose_shape(out_pose, "out_pose")
        if self.rows != out_rows:
            raise ValueError(
                f"votes keep the rows of a pose: children of {in_pose} cannot vote for parents of {out_pose}; "
                f"give parents of {self.rows} rows"
            )
        self.in_caps, self.in_pose, self.out_caps, self.out_pose = in_caps, in_pose, out_caps, out_pose
        size = self.rows * self.out_columns
        self.vote_shape = VoteShape(field, out_caps, size, self.columns, fan_in or field or 1, convolutional)
        self.routing = routings.create(routing)
        self.routing.attach(self.vote_shape)
        self.routing.to(device=device, dtype=dtype)
        self.with_bias = self.routing.vote_bias if bias is None else bias
        self.vote_norm = None
        if vote_norm is not None:
            self.vote_norm = VoteNorm(vote_norm, field, out_caps, size, device=device, dtype=dtype)

    def _make_weights(self, leading: tuple[int, ...], factory: Factory) -> None:
        """Weights ``(*leading, d, h)`` and the bias ``(*leading, c, h)``, not yet drawn."""
        self.weight = nn.Parameter(torch.empty(*leading, self.columns, self.out_columns, **factory))
        self.register_parameter("bias", None)
        self.register_parameter("offset", None)
        if self.with_bias:
            self.bias = nn.Parameter(torch.empty(*leading, self.rows, self.out_columns, **factory))

    def reset_parameters(self) -> None:
        """Draw all parameters anew: weights as the routing's authors have them, biases and the routing's own zero."""
        self._draw()
        reset_children(self)

    def _draw(self) -> None:
        nn.init.normal_(self.weight, std=self.routing.weight_std(self.vote_shape))
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.offset is not None:
            nn.init.normal_(self.offset)

    def extra_repr(self) -> str:
        sizes = ("in_caps", "in_pose", "out_caps", "out_pose")
        return ", ".join([*(f"{name}={getattr(self, name)}" for name in sizes), f"bias={self.with_bias}"])

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: the children.

        Returns:
            Votes, as an operator.
        """
        raise NotImplementedError

    def forward(self, capsules: Capsules, *, trace: Trace | None = None) -> Capsules:
        """Route the children to the parents.

        Args:
            capsules: the children.
            trace: filled with what each iteration comes to.

        Returns:
            The parents.
        """
        return self.routing(self._normed_votes(capsules), capsules.score, trace=trace)

    def step(self, children: Capsules, parents: Capsules | None = None, *, trace: Trace | None = None) -> Capsules:
        """One step from the parents of the step before, for ``concurrent_routing`` of routings that are ``stepwise``.

        Args:
            children: the children.
            parents: the parents of the step before; ``None`` the first time.
            trace: filled with what the step comes to.

        Returns:
            The parents of this step.
        """
        return self.routing.step(self._normed_votes(children), children.score, parents, trace=trace)

    def _normed_votes(self, capsules: Capsules) -> Votes:
        votes = self.votes(capsules)
        return votes if self.vote_norm is None else self.vote_norm(votes)


class DenseCapsules(CapsuleLayer):
    """Every child votes for every parent.

    With ``in_caps=None`` the layer takes any number of children, which share their weights; with ``out_caps=None`` too
    there are as many parents as children (Heinsen 2019, §3.1.1), or as many as a call asks for, told apart by a
    learned direction that each is moved along by its place in the row.

    Args:
        in_caps: child capsules; ``None`` for any number.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules; ``None`` for as many as children.
        out_pose: pose of a parent; of as many rows as a child's.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, of each ``"pair"`` of
            capsules, or none.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, in_caps, in_pose)``, scores ``(*b, in_caps)`` or none.
        - result: poses ``(*b, out_caps, out_pose)``, scores ``(*b, out_caps)`` if the routing gives any.
        - weight: ``(in_caps or 1, out_caps or 1, d, h)``; bias: ``(in_caps or 1, out_caps or 1, c, h)``.

    Returns:
        The parent ``Capsules``.

    Example:
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        if in_caps is not None and out_caps is None:
            raise ValueError(f"as many parents as children needs in_caps=None; got in_caps={in_caps}, out_caps=None")
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=in_caps, bias=bias, vote_norm=vote_norm, **factory
        )
        self._make_weights((in_caps or 1, out_caps or 1), factory)
        if out_caps is None:
            self.offset = nn.Parameter(torch.empty(1, self.rows, self.out_columns, **factory))
        self._draw()

    def votes(self, capsules: Capsules, num_parents: int | None = None) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: the children.
            num_parents: parents to vote for, where their number is open; as many as children if left out.

        Returns:
            Votes of shape ``(*b, i, j, p)``, as an operator.
        """
        check_capsules(capsules, "DenseCapsules")
        if self.in_caps is not None:
            if capsules.pose.shape[-2] != self.in_caps:
                raise ValueError(_name_mismatch(self.in_caps, capsules.pose.shape))
            return dense_votes(capsules.pose, self.weight, self.bias, rows=self.rows)
        weight, bias = self.weight[0], None if self.bias is None else self.bias[0]
        if self.offset is not None:
            parents = capsules.pose.shape[-2] if num_parents is None else num_parents
            if parents < 1:
                raise ValueError(f"routing needs at least one parent; got num_parents={num_parents}")
            # All parents' gradients meet in one weight: they are added up before they are rounded.
            weight = weight.to(_at_least_single(weight)).expand(parents, -1, -1)
            places = torch.linspace(-1.0, 1.0, parents, dtype=weight.dtype, device=weight.device)
            moved = places[:, None, None] * self.offset
            bias = moved if bias is None else bias + moved
        return shared_votes(capsules.pose, weight, bias, rows=self.rows)

    def forward(self, capsules: Capsules, *, num_parents: int | None = None, trace: Trace | None = None) -> Capsules:
        """Route the children to the parents.

        Args:
            capsules: the children.
            num_parents: parents, where their number is open; as many as children if left out.
            trace: filled with what each iteration comes to.

        Returns:
            The parents.
        """
        if num_parents is None:
            return super().forward(capsules, trace=trace)
        if self.out_caps is not None:
            raise ValueError(f"this layer has {self.out_caps} parents; num_parents={num_parents} needs out_caps=None")
        votes = self.votes(capsules, num_parents)
        return self.routing(votes if self.vote_norm is None else self.vote_norm(votes), capsules.score, trace=trace)


class ConvCapsules(CapsuleLayer):
    """Maps of capsules to maps of capsules: every parent sees a field of the children's grid.

    Children in the padding are absent: they do not vote, whatever the routing, as if the parents at the border had
    smaller fields.

    Args:
        in_caps: child capsules of each position.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules of each position.
        out_pose: pose of a parent; of as many rows as a child's.
        kernel_size: rows and columns of the field: one number for both, or a pair.
        stride: steps from field to field.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        padding: positions added on each side of the grid.
        dilation: steps from child to child within a field.
        competition: which parents share out a child: all that see it, at every position (``"image"``), or those of each
            receptive field alone (``"field"``); left out, as the routing's authors have it.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, of each ``"pair"`` of
            capsules, or none.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, row, column, in_caps, in_pose)``, scores ``(*b, row, column, in_caps)`` or none.
        - result: poses ``(*b, row', column', out_caps, out_pose)``, scores likewise, with the grid of ``nn.Conv2d``.
        - weight: ``(*kernel_size, in_caps, out_caps, d, h)``; bias: ``(*kernel_size, in_caps, out_caps, c, h)``.

    Returns:
        The parent ``Capsules``.

    Example:
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        window = Window.of(kernel_size, stride, padding, dilation)
        if vote_norm == "pair" and any(window.padding):
            raise ValueError(
                f"vote_norm='pair' with padding={padding}: pairs at the border would have statistics of fewer votes; "
                f"give vote_norm='component' or padding=0"
            )
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=prod(window.kernel_size) * in_caps, bias=bias,
            vote_norm=vote_norm, convolutional=True, **factory,
        )  # fmt: skip
        self.window = window
        self.competition: Competition = self.routing.competition if competition is None else competition
        self._make_weights((*window.kernel_size, in_caps, out_caps), factory)
        self._draw()

    def extra_repr(self) -> str:
        plain = Window.of(self.window.kernel_size)
        shown = [
            f"{name}={given}"
            for name, given, usual in zip(Window._fields, self.window, plain, strict=True)
            if name in ("kernel_size", "stride") or given != usual
        ]
        return ", ".join([super().extra_repr(), *shown, f"competition={self.competition!r}"])

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: a map of children.

        Returns:
            Votes of shape ``(*b, row', column', i, j, p)`` for the children ``i`` of each field, as an operator.
        """
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

    Args:
        in_caps: child capsules of each position.
        in_pose: pose of a child, an int for a vector or ``(rows, columns)`` for a matrix.
        out_caps: parent capsules.
        out_pose: pose of a parent; of as many rows as a child's.
        routing: a name (``tc.routing.ROUTINGS``, or ``package.module:Class``), a class, or an instance of its own.
        coordinates: whether to add each child's place to its votes: its row and column to the first two elements of the
            last column of the vote (Hinton 2018).
        coordinate_scale: what rows and columns are multiplied by before that.
        bias: whether votes have a bias; left out, as the routing's paper has it.
        vote_norm: batch norm between votes and routing (Zhao 2020): of each pose ``"component"``, or none.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, row, column, in_caps, in_pose)``, scores ``(*b, row, column, in_caps)`` or none.
        - result: poses ``(*b, out_caps, out_pose)``, scores ``(*b, out_caps)`` if the routing gives any.
        - weight: ``(in_caps, out_caps, d, h)``; bias: ``(in_caps, out_caps, c, h)``.

    Returns:
        The parent ``Capsules``.

    Example:
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=None, bias=bias, vote_norm=vote_norm, fan_in=in_caps,
            **factory,
        )  # fmt: skip
        if coordinates and self.rows * self.out_columns < 2:
            raise ValueError(f"coordinates need two numbers of the pose; got a pose of {out_pose}")
        self.coordinates, self.coordinate_scale = coordinates, coordinate_scale
        self._make_weights((in_caps, out_caps), factory)
        self._draw()

    def extra_repr(self) -> str:
        scale = f", coordinate_scale={self.coordinate_scale}" if self.coordinates else ""
        return f"{super().extra_repr()}, coordinates={self.coordinates}{scale}"

    def votes(self, capsules: Capsules) -> Votes:
        """The votes of these capsules, before any routing.

        Args:
            capsules: a map of children.

        Returns:
            Votes of shape ``(*b, i, j, p)`` for all children ``i`` of the grid, as an operator.
        """
        *_, height, width, types, _ = self._check(capsules)
        places = None
        if self.coordinates:
            places = grid_coordinates(height, width, self.rows, self.out_columns, like=self.weight)
            places = (self.coordinate_scale * places).repeat_interleave(types, 0)
        pose = capsules.pose.flatten(-4, -2)
        return dense_votes(pose, self.weight, self.bias, rows=self.rows, coordinates=places)

    def forward(self, capsules: Capsules, *, trace: Trace | None = None) -> Capsules:
        """Route the children of all positions to the parents.

        Args:
            capsules: a map of children.
            trace: filled with what each iteration comes to.

        Returns:
            The parents.
        """
        votes = self._normed_votes(capsules)
        score = None if capsules.score is None else capsules.score.flatten(-3)
        return self.routing(votes, score, trace=trace)

    def step(self, children: Capsules, parents: Capsules | None = None, *, trace: Trace | None = None) -> Capsules:
        """One step from the parents of the step before, for ``concurrent_routing``.

        Args:
            children: a map of children.
            parents: the parents of the step before; ``None`` the first time.
            trace: filled with what the step comes to.

        Returns:
            The parents of this step.
        """
        check_capsules(children, "ClassCapsules")
        score = None if children.score is None else children.score.flatten(-3)
        return super().step(Capsules(children.pose, score), parents, trace=trace)

    def _check(self, capsules: Capsules) -> torch.Size:
        check_capsules(capsules, "ClassCapsules")
        shape = capsules.pose.shape
        if len(shape) < 4 or shape[-2] != self.weight.shape[0]:
            raise ValueError(
                f"this layer takes a map (*b, row, column, {self.weight.shape[0]}, d) of capsules; got {tuple(shape)}"
            )
        return shape


def grid_coordinates(height: int, width: int, rows: int, columns: int, *, like: Tensor) -> Float[Tensor, "i c h"]:
    """What coordinate addition adds to the votes from each position: the row and the column of its center, counted in
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
