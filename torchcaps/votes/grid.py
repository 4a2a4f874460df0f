"""The geometry of a convolution of capsules: which children of a grid each parent position sees."""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torchcaps.capsules import Pair, as_pair
from torchcaps.kernels.library import must_be_traceable


class Window(NamedTuple):
    """The receptive field of a parent and how it moves over the grid, along rows and columns."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, kernel_size: Pair, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1) -> "Window":
        """A window of numbers or pairs.

        >>> Window.of(3, stride=(1, 2)).stride
        (1, 2)
        """
        return cls(
            as_pair(kernel_size, "kernel_size"),
            as_pair(stride, "stride"),
            as_pair(padding, "padding", least=0),
            as_pair(dilation, "dilation"),
        )

    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first to the last child of a field."""
        tall, wide = (step * (size - 1) + 1 for size, step in zip(self.kernel_size, self.dilation, strict=True))
        return tall, wide

    def count_positions(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of the parents' grid.

        >>> Window.of(3, stride=2, padding=1).count_positions((5, 8))
        (3, 4)
        """
        tall, wide = (
            (size + 2 * pad - extent) // step + 1
            for size, pad, extent, step in zip(grid, self.padding, self.extent(), self.stride, strict=True)
        )
        return tall, wide

    def check(self, grid: tuple[int, int]) -> None:
        """That the grid has room for the window, and that every parent sees at least one child."""
        padded = f" with padding {self.padding}" if any(self.padding) else ""
        if any(size < 1 for size in grid) or any(count < 1 for count in self.count_positions(grid)):
            tall, wide = self.extent()
            raise ValueError(f"a grid of {grid[0]} × {grid[1]}{padded} is smaller than the {tall} × {wide} kernel")
        if any(self.padding) and not all(self._always_sees(grid, axis) for axis in (0, 1)):
            raise ValueError(
                f"some parents would see padding alone: kernel_size {self.kernel_size}, stride {self.stride}, padding "
                f"{self.padding} and dilation {self.dilation} on a grid of {grid[0]} × {grid[1]}; give less padding"
            )

    def _always_sees(self, grid: tuple[int, int], axis: int) -> bool:
        starts = [at * self.stride[axis] - self.padding[axis] for at in range(self.count_positions(grid)[axis])]
        steps = [at * self.dilation[axis] for at in range(self.kernel_size[axis])]
        return all(any(0 <= start + step < grid[axis] for step in steps) for start in starts)


class GridTables(NamedTuple):
    """Which child positions each parent position sees, and the other way round."""

    child_of: Int[Tensor, "q k"]  # parent position, place in its kernel -> position of the child, s where it is padding
    seen_by: Int[Tensor, "s m"]  # child position -> the (parent position, place) pairs that see it, padded with q * k
    watchers: Int[Tensor, "s"]  # how many parent positions see the child
    there: Bool[Tensor, "q k"] | None  # whether there is a child; None without padding, where there always is

    def there_of_types(self, types: int) -> Bool[Tensor, "q i"] | None:
        """Whether each child of a field is there, for children ordered (place in the kernel, type)."""
        return None if self.there is None else self.there.repeat_interleave(types, 1)


def find_tables(grid: tuple[int, int], window: Window, like: Tensor) -> GridTables:
    """The tables of a convolution of this tensor, made once for all calls: small layers feel it, and so do
    accelerators. Whoever looks through the operations gets tables of his own."""
    plain = type(like) is Tensor or type(like) is torch.nn.Parameter
    if not plain or must_be_traceable() or torch._C._len_torch_dispatch_stack() > 0:
        return grid_tables(grid, window, like.device)
    return _kept_tables(grid, window, like.device)


@lru_cache(maxsize=64)
def _kept_tables(grid: tuple[int, int], window: Window, device: torch.device) -> GridTables:
    with torch.inference_mode(False):  # what is made in that mode is of no use in training
        return grid_tables(grid, window, device)


def grid_tables(grid: tuple[int, int], window: Window, device: torch.device) -> GridTables:
    """The tables of a convolution, from the geometry alone.

    >>> grid_tables((3, 3), Window.of(2), torch.device("cpu")).watchers.reshape(3, 3)
    tensor([[1, 2, 1],
            [2, 4, 2],
            [1, 2, 1]])
    """
    tall, wide = window.count_positions(grid)
    rows, columns = (_covered(count, axis, window, device) for axis, count in enumerate((tall, wide)))
    row, column = rows[:, None, :, None], columns[None, :, None, :]
    child_of = (row * grid[1] + column).flatten(2).flatten(0, 1)
    there = None
    if any(window.padding):
        inside = ((row >= 0) & (row < grid[0])) & ((column >= 0) & (column < grid[1]))
        there = inside.flatten(2).flatten(0, 1)
        child_of = torch.where(there, child_of, grid[0] * grid[1])

    (above, in_y, seen_y), (left, in_x, seen_x) = (
        _watchers(size, count, axis, window, device)
        for axis, (size, count) in enumerate(zip(grid, (tall, wide), strict=True))
    )
    places = window.kernel_size[0] * window.kernel_size[1]
    parent = above[:, None, :, None] * wide + left[None, :, None, :]
    place = in_y[:, None, :, None] * window.kernel_size[1] + in_x[None, :, None, :]
    seen = seen_y[:, None, :, None] & seen_x[None, :, None, :]
    seen_by = torch.where(seen, parent * places + place, tall * wide * places).flatten(2).flatten(0, 1)
    return GridTables(child_of, seen_by, seen.flatten(2).sum(-1).flatten(), there)


def _covered(count: int, axis: int, window: Window, device: torch.device) -> Int[Tensor, "count k"]:
    """Along one axis: the places that each parent's field covers, below zero or beyond the end in the padding."""
    start = torch.arange(count, device=device) * window.stride[axis] - window.padding[axis]
    return start[:, None] + torch.arange(window.kernel_size[axis], device=device) * window.dilation[axis]


def _watchers(
    size: int, count: int, axis: int, window: Window, device: torch.device
) -> tuple[Int[Tensor, "s m"], Int[Tensor, "s m"], Bool[Tensor, "s m"]]:
    """For each place on one axis: the parents that may see it, where in their kernels, and whether they do."""
    kernel, stride, padding, dilation = (pair[axis] for pair in window)
    # The place y is at k in the kernel of parent (y + padding - k · dilation) / stride, for every k that makes this a
    # whole number: the first such k depends on y modulo the stride, the others follow at equal steps.
    firsts = [next((k for k in range(kernel) if (k * dilation - rest) % stride == 0), kernel) for rest in range(stride)]
    step = next(k for k in range(1, stride + 1) if k * dilation % stride == 0)
    place = torch.arange(size, device=device)[:, None] + padding
    first = torch.tensor(firsts, device=device)[place % stride]
    within = first + step * torch.arange(-(-kernel // step), device=device)
    parent = (place - within * dilation).div(stride, rounding_mode="floor")
    return parent, within, (parent >= 0) & (parent < count) & (within < kernel)


class ChildGrid:
    """How the children of a map are laid out over the receptive fields of the parents."""

    def __init__(self, shape: tuple[int, ...], tables: GridTables) -> None:
        self.shape = shape  # (*b, rows, columns, types)
        self.tables = tables

    @property
    def there(self) -> Bool[Tensor, "q i"] | None:
        """Which children of each field are there; None without padding."""
        return self.tables.there_of_types(self.shape[-1])

    def lay_out(
        self, quantity: Float[Tensor, "*b row column t x"], *, padding: float = 0.0
    ) -> Float[Tensor, "n q i x"]:
        """A quantity of the children for each field that they are in, ``padding`` where a field has none."""
        child_of = self.tables.child_of
        flat = quantity.reshape(-1, self.shape[-3] * self.shape[-2], *quantity.shape[-2:])
        if self.tables.there is not None:
            flat = F.pad(flat, (0, 0, 0, 0, 0, 1), value=padding)
        taken = flat.index_select(1, child_of.flatten()).unflatten(1, child_of.shape)
        return taken.flatten(2, 3)
