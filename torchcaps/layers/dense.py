"""Every child votes for every parent."""

from math import prod

import torch
from torch import nn

from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes
from torchcaps.layers.base import CapsuleLayer, _at_least_single
from torchcaps.norms import Per
from torchcaps.parameters import Device, Factory
from torchcaps.routing import Routing, Trace
from torchcaps.votes import Votes, dense_votes, shared_votes
from torchcaps.votes.norm import NormAxes


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
        pose_norm: batch norm of the parents' poses (Hahn 2019): of each ``"component"`` of each type, of each
            ``"type"`` (Ribeiro 2020), or none.
        places: positions of the grid that the children lie at, if they come from one; the initial weights of
            variational Bayes routing depend on it, as those of a convolution that sees the whole grid.
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
        pose_norm: Per | None = None,
        places: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps, places=places)
        if in_caps is not None and out_caps is None:
            raise ValueError(f"as many parents as children needs in_caps=None; got in_caps={in_caps}, out_caps=None")
        if in_caps is not None and in_caps % places:
            raise ValueError(
                f"children lie evenly at all places: got in_caps={in_caps}, no multiple of places={places}"
            )
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=in_caps, bias=bias, vote_norm=vote_norm,
            pose_norm=pose_norm, places=places, **factory,
        )  # fmt: skip
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
        votes = votes if self.vote_norm is None else self.vote_norm(votes)
        return self._finish(self.routing(votes, capsules.score, trace=trace))


def _name_mismatch(children: int, shape: torch.Size) -> str:
    message = f"this layer takes {children} children; got poses of shape {tuple(shape)}"
    if len(shape) >= 4 and prod(shape[-4:-1]) == children:
        return f"{message}, a map of as many: give it flatten_grid(capsules)"
    return message
