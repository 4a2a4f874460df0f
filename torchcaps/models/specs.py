"""What a network is made of, as data: each spec makes its module once the sizes below it are known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from torchcaps.capsules import Capsules, Pair, Pose, pose_shape
from torchcaps.layers import ClassCapsules, ConvCapsules, DenseCapsules
from torchcaps.norms import Per
from torchcaps.primary import (
    BatchNormPrimaryCapsules,
    DepthwisePrimaryCapsules,
    LayerNormPrimaryCapsules,
    MatrixPrimaryCapsules,
    NormalizedPrimaryCapsules,
    NormalizedScorePrimaryCapsules,
    SquashedPrimaryCapsules,
)
from torchcaps.routing import Routing, resolve
from torchcaps.votes import Competition
from torchcaps.votes.grid import Window
from torchcaps.votes.norm import NormAxes

MakesRouting = str | Callable[[], Routing]
"""A routing by its name, its class, or a function that makes one: every layer needs its own."""

PRIMARIES: dict[str, Callable[..., nn.Module]] = {
    "squashed": SquashedPrimaryCapsules,
    "matrix": MatrixPrimaryCapsules,
    "normalized_score": NormalizedScorePrimaryCapsules,
    "layer_norm": LayerNormPrimaryCapsules,
    "normalized": NormalizedPrimaryCapsules,
    "depthwise": DepthwisePrimaryCapsules,
    "batch_norm": BatchNormPrimaryCapsules,
}


class Shape(NamedTuple):
    """The capsules that a layer is given: how many (``None``: any number), their pose, and their grid if they have
    one."""

    caps: int | None  # of each position, where there is a grid
    pose: Pose
    grid: tuple[int, int] | None = None

    @property
    def pose_size(self) -> int:
        rows, columns = pose_shape(self.pose)
        return rows * columns

    @property
    def total(self) -> int | None:
        """All capsules of the grid together."""
        if self.caps is None:
            return None
        return self.caps * (1 if self.grid is None else self.grid[0] * self.grid[1])

    def example(self, like: torch.Tensor) -> Capsules:
        """One example's capsules of this shape, all zero."""
        leading = (1, *(self.grid or ()), self.caps or 1)
        return Capsules(like.new_zeros(*leading, self.pose_size), like.new_zeros(leading))


@dataclass(frozen=True)
class Primary:
    """Primary capsules of one of the kinds in ``PRIMARIES``.

    Args:
        kind: a name of ``PRIMARIES``.
        caps: capsules of each position.
        pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        options: other arguments of the constructor, as pairs of name and value.

    Example:
        >>> Primary("squashed", 8, 16, (("kernel_size", 5),)).build(64).convolution.kernel_size
        (5, 5)
    """

    kind: str
    caps: int
    pose: Pose
    options: tuple[tuple[str, object], ...] = ()

    def build(self, channels: int) -> nn.Module:
        """Make the primary capsules.

        Args:
            channels: channels of the features.

        Returns:
            The module.
        """
        if self.kind not in PRIMARIES:
            raise ValueError(f"no primary capsules {self.kind!r}; there are {', '.join(map(repr, PRIMARIES))}")
        return PRIMARIES[self.kind](channels, self.caps, self.pose, **dict(self.options))


@dataclass(frozen=True)
class Given:
    """A module of your own, from capsules to capsules; or, below all layers, from features to capsules.

    Args:
        module: the module.
        pose: pose of the capsules that it returns, an int for a vector or ``(rows, columns)`` for a matrix.
    """

    module: nn.Module
    pose: Pose


@dataclass(frozen=True)
class Conv:
    """A layer of ``ConvCapsules``: each parent sees a field of the grid below.

    Args:
        caps: capsules of each position.
        pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns of the field: one number for both, or a pair.
        stride: steps from field to field.
        routing: a name, a class, or a function that makes a routing (``tc.models.routing``).
        padding: positions added on each side of the grid.
        dilation: steps from child to child within a field.
        competition: which parents share out a child: ``"image"``, ``"field"``, or as the routing's authors have it.
        vote_norm: batch norm of the votes: of each ``"component"``, of each ``"pair"``, or none.
        pose_norm: batch norm of the parents' poses: of each ``"component"`` of each type, of each ``"type"``, or none.
    """

    caps: int
    pose: Pose
    kernel_size: Pair
    stride: Pair = 1
    routing: MakesRouting = "dynamic"
    padding: Pair = 0
    dilation: Pair = 1
    competition: Competition | None = None
    vote_norm: NormAxes | None = None
    pose_norm: Per | None = None

    def build(self, below: Shape) -> tuple[nn.Module, Shape]:
        """Make the layer.

        Args:
            below: the capsules that it is given.

        Returns:
            The layer, and the capsules that it returns.
        """
        if below.grid is None or below.caps is None:
            raise ValueError(f"{self} needs a grid of capsules below it; there is a plain set of {below.caps}")
        window = Window.of(self.kernel_size, self.stride, self.padding, self.dilation)
        positions = window.count_positions(below.grid)
        if min(positions) < 1:
            tall, wide = window.extent()
            raise ValueError(
                f"a field of {tall}×{wide} does not fit the grid of {below.grid[0]}×{below.grid[1]} below it; give "
                "larger images or a smaller kernel_size"
            )
        window.check(below.grid)
        layer = ConvCapsules(
            below.caps,
            below.pose,
            self.caps,
            self.pose,
            self.kernel_size,
            self.stride,
            _make(self.routing),
            padding=self.padding,
            dilation=self.dilation,
            competition=self.competition,
            vote_norm=self.vote_norm,
            pose_norm=self.pose_norm,
        )
        return layer, Shape(self.caps, self.pose, positions)


@dataclass(frozen=True)
class Dense:
    """A layer of ``DenseCapsules``: every parent sees all children.

    Args:
        caps: its capsules.
        pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        routing: a name, a class, or a function that makes a routing (``tc.models.routing``).
        shared: whether all children have the same weights, so that there may be any number of them.
        vote_norm: batch norm of the votes: of each ``"component"``, of each ``"pair"``, or none.
        pose_norm: batch norm of the parents' poses: of each ``"component"`` of each type, of each ``"type"``, or none.
    """

    caps: int
    pose: Pose
    routing: MakesRouting = "dynamic"
    shared: bool = False
    vote_norm: NormAxes | None = None
    pose_norm: Per | None = None

    def build(self, below: Shape) -> tuple[nn.Module, Shape]:
        """Make the layer.

        Args:
            below: the capsules that it is given.

        Returns:
            The layer, and the capsules that it returns.
        """
        children = None if self.shared else below.total
        if children is None and not self.shared:
            raise ValueError(f"{self} has weights for each child, but their number is open; give it shared=True")
        layer = DenseCapsules(
            children,
            below.pose,
            self.caps,
            self.pose,
            _make(self.routing),
            vote_norm=self.vote_norm,
            pose_norm=self.pose_norm,
            places=1 if self.shared or below.grid is None else below.grid[0] * below.grid[1],
        )
        return layer, Shape(self.caps, self.pose)


@dataclass(frozen=True)
class Class:
    """A layer of ``ClassCapsules``: all positions of a grid vote, with weights for each type of child.

    Args:
        caps: its capsules.
        pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        routing: a name, a class, or a function that makes a routing (``tc.models.routing``).
        coordinates: whether each child's place is added to its votes.
        coordinate_scale: what rows and columns are multiplied by before that.
    """

    caps: int
    pose: Pose
    routing: MakesRouting = "em"
    coordinates: bool = True
    coordinate_scale: float = 0.01

    def build(self, below: Shape) -> tuple[nn.Module, Shape]:
        """Make the layer.

        Args:
            below: the capsules that it is given.

        Returns:
            The layer, and the capsules that it returns.
        """
        if below.grid is None or below.caps is None:
            raise ValueError(f"{self} needs a grid of capsules below it; there is a plain set of {below.caps}")
        layer = ClassCapsules(
            below.caps,
            below.pose,
            self.caps,
            self.pose,
            _make(self.routing),
            coordinates=self.coordinates,
            coordinate_scale=self.coordinate_scale,
        )
        return layer, Shape(self.caps, self.pose)


LayerSpec = Conv | Dense | Class | Given


def routing(name: str | type[Routing], num_iters: int | None = None, **options: Any) -> Callable[[], Routing]:
    """A maker of routings from a name or class and settings.

    Args:
        name: a key of ``tc.routing.ROUTINGS``, the import path of a class, or a class.
        num_iters: iterations, which a routing that does not iterate is not given; its own number if left out.
        **options: other arguments of the routing.

    Returns:
        A function that makes a routing: every layer needs its own.

    Example:
        >>> routing("dynamic", 2, orphan=True)().num_iters
        2
    """
    kind = resolve(name)
    if num_iters is not None and kind.iterates:
        options = {"num_iters": num_iters, **options}
    return partial(kind, **options)


def squash_option(name: str, class_squash: str | None) -> dict[str, Any]:
    """The routing's option for a model's ``class_squash``; none if that is left out."""
    if class_squash is None:
        return {}
    if not resolve(name).takes("squash"):
        raise ValueError(
            f"class_squash={class_squash!r} is for routings that squash; got routing={name!r}: leave class_squash out"
        )
    return {"squash": class_squash}


def _make(routing: MakesRouting) -> str | Routing:
    return routing if isinstance(routing, str) else routing()
