"""The sizes of a convolution, and what each way to make it costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from torchcaps.convolution.costs import COSTS

Way = Literal["direct", "implicit", "fourier", "winograd"]
"""How a convolution is made: by PyTorch, by an implicit matrix product, or by one of the transforms."""

Gradients = tuple[bool, bool]
"""Whether those of features are wanted, and those of weights."""

TILE, POINTS = 4, 36
"""Winograd's transforms: rows and columns of the outputs that are made together, and the products that they take."""

NEVER_KEPT = 32 << 20
"""Bytes of tensors that the C library takes from the system and gives back every time: their pages are made anew."""

NEVER_KEPT_IN_TRAINING = 24 << 20
"""The same in training, in which PyTorch holds copies in orders of its own beside them."""

CHANNELS_AT_ONCE = 16
"""PyTorch makes gradients of features for so many channels, even if there are fewer."""

LEAVES_CACHE = 24 << 20
"""Bytes of the points of as few channels as Fourier transforms make at a time: more leave the third-level cache before
they are multiplied. The size with which the costs fit best, as a test holds."""

IN_REGISTERS = (6, 64)
"""The implicit product's block: output channels and positions."""

SUMMED_AT_ONCE = 1024
"""Positions whose products are summed in the lanes of vectors before the implicit product adds up these for a gradient
of the weights."""

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

    def find_cheapest(self, ways: Iterable[Way], *, gradients: Gradients) -> Way:
        """The fastest of some ways, by the measured costs.

        Args:
            ways: those to choose from.
            gradients: whether those of the features will be wanted, and those of the weights.
        """
        costs = COSTS[name_task(gradients)]

        def weigh(way: Way) -> float:
            return sum(count * cost for count, cost in zip(self.count_work(way, gradients), costs[way], strict=True))

        return min(ways, key=weigh)

    def count_work(self, way: Way, gradients: Gradients) -> tuple[int, ...]:
        """What the costs are of: multiplications, numbers in tensors so large that their pages are made anew, and what
        else takes time."""
        passes = 1 + sum(gradients)
        moved = self.in_channels * prod(self.inputs), self.out_channels * prod(self.outputs)
        most = NEVER_KEPT_IN_TRAINING if any(gradients) else NEVER_KEPT
        fresh = sum(self.examples * count for count in moved if 4 * self.examples * count > most)
        if way == "direct":
            multiplications, *rest = self._count_direct(gradients, sum(moved))
        elif way == "implicit":
            multiplications, *rest = self._count_implicit(passes)
        else:
            multiplications, *rest = self._count_winograd() if way == "winograd" else self._count_fourier()
            multiplications, rest = passes * multiplications, [passes * count for count in rest]
        return multiplications, passes * fresh, *rest

    def _count_direct(self, gradients: Gradients, moved: int) -> tuple[int, int, int]:
        """Multiplications, weights, and the numbers that are read and written."""
        taps = self.out_channels * prod(self.window)
        weights, passes = self.in_channels * taps, 1 + sum(gradients)
        padded = ceil(self.in_channels / CHANNELS_AT_ONCE) * CHANNELS_AT_ONCE - self.in_channels
        multiplied = passes * weights + (padded * taps if gradients[0] else 0)
        return self.examples * multiplied * prod(self.outputs), weights, passes * self.examples * moved

    def _count_implicit(self, passes: int) -> tuple[int, int, int]:
        """Multiplications, the numbers that are read and written, and the sums of lanes for a gradient of weights."""
        tall, wide = IN_REGISTERS
        # Every line has room for the taps of its last output.
        positions = ceil(self.outputs[0] * self.positions[1] / wide) * wide
        taps, above = self.in_channels * prod(self.window), ceil(self.out_channels / tall) * tall
        moved = self.channels * prod(self.positions) + self.out_channels * positions
        sums = ceil(positions / SUMMED_AT_ONCE) * taps * above if passes > 1 else 0
        return passes * self.examples * taps * above * positions, passes * self.examples * moved, self.examples * sums

    def _count_winograd(self) -> tuple[int, int]:
        """Multiplications, and the numbers that transforms write, of one pass."""
        pairs, tiles = self.in_channels * self.out_channels, prod(self.tiles)
        lanes = self.examples * ceil(tiles / LANES) * LANES  # the rest of a vector is for nothing
        written = lanes * (self.in_channels + self.out_channels) + pairs
        return POINTS * self.examples * tiles * pairs, POINTS * written

    def _count_fourier(self) -> tuple[int, int, int]:
        """Multiplications, the numbers that transforms write, and those that leave the cache, of one pass."""
        points, places = count_points(*self.positions), prod(self.stride)
        below, above = (ceil(count / LANES) * LANES for count in (self.in_channels, self.out_channels))
        columns = (self.examples * places * below, self.out_channels * places * below, self.examples * above)
        transforms = sum(map(prod, zip(columns, map(self._count_transform, self._planes), strict=True)))
        products, written = points * self.examples * self.channels * self.out_channels, points * sum(columns)
        block = 4 * points * places * min(LANES, self.in_channels) * (self.examples + self.out_channels)
        return products + transforms, written, written if block > LEAVES_CACHE else 0

    @property
    def _planes(self) -> tuple[tuple[int, ...], ...]:
        """The positions of features, weights and outputs that Fourier transforms read or write."""
        return self.positions, self.taps, self.outputs

    def _count_transform(self, plane: tuple[int, ...]) -> int:
        """The multiplications of a plane's transform: its rows first, then all columns of the grid."""
        (high, wide), (rows, columns) = self.positions, plane
        return rows * columns * wide + high * rows * wide


def name_task(gradients: Gradients) -> str:
    """What ``COSTS`` calls it. The images of a first layer want no gradient."""
    of_features, of_weights = gradients
    return "first layer" if of_weights and not of_features else "training" if of_features else "inference"


def count_points(rows: int, columns: int) -> int:
    """Real products of one pair of channels by Fourier transforms: one for each real frequency of a grid, three for
    each complex pair."""
    real = (2 - rows % 2) * (2 - columns % 2)
    return real + 3 * (rows * columns - real) // 2
