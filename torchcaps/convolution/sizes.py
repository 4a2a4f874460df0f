"""The sizes of a convolution, and what each way to make it costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from torchcaps.convolution.costs import COSTS

Way = Literal["direct", "fourier", "winograd"]
"""How a convolution is made: by PyTorch, or by one of the transforms."""

TILE, POINTS = 4, 36
"""Winograd's transforms: rows and columns of the outputs that are made together, and the products that they take."""

LANES = 16
"""What the kernels transform at once: tiles of one image by Winograd's transforms, channels by Fourier's."""


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution: ``(rows, columns)`` where there are two."""

    examples: int
    in_channels: int
    out_channels: int
    inputs: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        sizes = zip(self.inputs, self.window, self.stride, self.padding, strict=True)
        return tuple((size + 2 * pad - window) // step + 1 for size, window, step, pad in sizes)

    @property
    def taps(self) -> tuple[int, ...]:
        """The window after the stride is undone."""
        return tuple(ceil(window / step) for window, step in zip(self.window, self.stride, strict=True))

    @property
    def positions(self) -> tuple[int, ...]:
        """The grid that is transformed, after the stride is undone: what the outputs see and no more."""
        return tuple(out + tap - 1 for out, tap in zip(self.outputs, self.taps, strict=True))

    @property
    def channels(self) -> int:
        """Input channels after the stride is undone."""
        return self.in_channels * prod(self.stride)

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles of outputs down and across."""
        return tuple(ceil(size / TILE) for size in self.outputs)

    def find_cheapest(self, ways: Iterable[Way], *, training: bool) -> Way:
        """The fastest of some ways, by the measured costs."""
        costs = COSTS["training" if training else "inference"]

        def weigh(way: Way) -> float:
            counts = self.count_work(way, training=training)
            return sum(count * cost for count, cost in zip(counts, costs[way], strict=True))

        return min(ways, key=weigh)

    def count_work(self, way: Way, *, training: bool) -> tuple[int, int]:
        """What the costs are of: multiplications; and weights, or the numbers that transforms write."""
        passes = 3 if training else 1
        pairs = self.in_channels * self.out_channels
        if way == "direct":
            return passes * self.examples * pairs * prod(self.outputs) * prod(self.window), pairs * prod(self.window)
        if way == "winograd":
            tiles = prod(self.tiles)
            lanes = self.examples * ceil(tiles / LANES) * LANES  # the rest of a vector is for nothing
            written = lanes * (self.in_channels + self.out_channels) + pairs
            return passes * POINTS * self.examples * tiles * pairs, passes * POINTS * written
        points, places = count_points(*self.positions), prod(self.stride)
        below, above = (ceil(count / LANES) * LANES for count in (self.in_channels, self.out_channels))
        columns = (self.examples * places * below, self.out_channels * places * below, self.examples * above)
        transforms = sum(map(prod, zip(columns, map(self._count_transform, self._planes), strict=True)))
        products = points * self.examples * self.channels * self.out_channels
        return passes * (products + transforms), passes * points * sum(columns)

    @property
    def _planes(self) -> tuple[tuple[int, ...], ...]:
        """The positions of features, weights and outputs that Fourier transforms read or write."""
        return self.positions, self.taps, self.outputs

    def _count_transform(self, plane: tuple[int, ...]) -> int:
        """The multiplications of a plane's transform: its rows first, then all columns of the grid."""
        (high, wide), (rows, columns) = self.positions, plane
        return rows * columns * wide + high * rows * wide


def count_points(rows: int, columns: int) -> int:
    """Real products of one pair of channels by Fourier transforms: one for each real frequency of a grid, three for
    each complex pair."""
    real = (2 - rows % 2) * (2 - columns % 2)
    return real + 3 * (rows * columns - real) // 2
