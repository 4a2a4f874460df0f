"""Class capsules over a grid: weights that all positions share, with the coordinates added to the votes."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes
from torchcaps.layers.base import CapsuleLayer, _at_least_single
from torchcaps.norms import Per
from torchcaps.parameters import Device, Factory
from torchcaps.routing import Routing, Trace
from torchcaps.votes import Votes, dense_votes


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
        pose_norm: batch norm of the parents' poses (Hahn 2019): of each ``"component"`` of each type, of each
            ``"type"`` (Ribeiro 2020), or none.
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
        pose_norm: Per | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_caps=in_caps, out_caps=out_caps)
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            in_caps, in_pose, out_caps, out_pose, routing, field=None, bias=bias, vote_norm=vote_norm,
            pose_norm=pose_norm, types=in_caps, **factory,
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
        return self._finish(self.routing(votes, score, trace=trace))

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
