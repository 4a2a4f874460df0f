"""Large convolutions on a CPU, with a sixth of the multiplications.

CapsNet spends most of its time in one convolution: 9×9 windows, 256 channels in and out. Fourier transforms turn a
convolution into a product for each frequency. Three things make that pay on grids of ten positions or so, where the
usual transform of the whole image would not:

- a stride is undone first: the positions between two steps become channels, so that a window of 9×9 with a stride of 2
  is one of 5×5 with a stride of 1 over four times the channels;
- a product of two complex numbers takes three real ones, and the sums that this needs are part of the transforms, so
  the whole is ``outputs = A ((B features) * (G weights))`` with three constant real matrices;
- for each of their rows the products over channels are one matrix product, and a few rows at a time stay in cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from torchcaps.convolution_costs import COSTS
from torchcaps.kernels.library import must_be_traceable
from torchcaps.kernels.modes import are_batched, in_full_precision, is_full_precision
from torchcaps.kernels.workspace import MOST_KEPT, Workspace, borrow_workspace

MOST_POSITIONS = 32**2
"""Grids of more positions go to PyTorch: the transforms are products with matrices of this size."""


class Conv2d(nn.Conv2d):
    """``nn.Conv2d``, by Fourier transforms where that is faster: large windows and many channels, on a CPU.

    Args:
        *arguments: those of ``nn.Conv2d``. Parameters, saved weights and, but for rounding, results are the same too.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> Conv2d(256, 256, 9, stride=2)(torch.zeros(1, 256, 20, 20)).shape
        torch.Size([1, 256, 6, 6])
    """

    def forward(self, input: Tensor) -> Tensor:
        convolution = self._plan(input)
        if convolution is None:
            return super().forward(input)
        total = convolve_by_fourier(input, self.weight, convolution)
        return total if self.bias is None else total + self.bias[:, None, None]

    def _plan(self, features: Tensor) -> "Convolution | None":
        """What there is to do, if transforms can do it and are faster."""
        if must_be_traceable() or features.dim() != 4 or features.device.type != "cpu":
            return None
        if (
            self.groups != 1
            or set(self.dilation) != {1}
            or self.padding_mode != "zeros"
            or isinstance(self.padding, str)
        ):
            return None
        same = type(features) is Tensor and features.dtype == self.weight.dtype in (torch.float32, torch.float64)
        if not same or features.shape[1] != self.in_channels or not is_full_precision(features.device):
            return None
        found = Convolution(
            features.shape[0], self.in_channels, self.out_channels, tuple(features.shape[2:]), self.kernel_size,
            self.stride, self.padding,
        )  # fmt: skip
        if min(found.outputs) < 1 or prod(found.positions) > MOST_POSITIONS:
            return None
        training = torch.is_grad_enabled() and (features.requires_grad or self.weight.requires_grad)
        return found if found.is_faster(training=training) else None


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

    def is_faster(self, *, training: bool) -> bool:
        """Whether transforms are faster than PyTorch, by the measured costs."""
        direct, fourier = self.features(training=training)
        costs = COSTS["training" if training else "inference"]
        return _weigh(fourier, costs["fourier"]) < _weigh(direct, costs["direct"])

    def features(self, *, training: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        """What the costs are of, for PyTorch and for transforms: multiplications, and numbers written in between."""
        pairs = self.in_channels * self.out_channels
        direct = self.examples * pairs * prod(self.outputs) * prod(self.window)
        points = count_points(*self.positions)
        columns = (self.examples * self.channels, self.channels * self.out_channels, self.examples * self.out_channels)
        sizes = (prod(self.positions), prod(self.taps), prod(self.outputs))
        transforms = points * sum(size * column for size, column in zip(sizes, columns, strict=True))
        products = points * self.examples * self.channels * self.out_channels
        passes = 3 if training else 1
        return (
            (passes * direct, pairs * prod(self.window)),
            (passes * (products + transforms), passes * points * sum(columns)),
        )


def _weigh(features: tuple[int, int], costs: tuple[float, float]) -> float:
    return sum(feature * cost for feature, cost in zip(features, costs, strict=True))


def count_points(rows: int, columns: int) -> int:
    """Real products of one pair of channels: one for each real frequency of a grid, three for each complex pair."""
    real = (2 - rows % 2) * (2 - columns % 2)
    return real + 3 * (rows * columns - real) // 2


@lru_cache(maxsize=16)
def make_transforms(
    positions: tuple[int, int], taps: tuple[int, int], outputs: tuple[int, int], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """``B``, ``G`` and ``A'``, all ``(point, position)``, of a convolution with the window not turned around.

    At a frequency the features are ``X = a + ib`` and the turned window is ``W = c + id``. With ``p = c (a + b)``,
    ``q = a (d - c)`` and ``r = b (c + d)`` their product is ``(p - r) + i (p + q)``.
    """
    rows, columns = positions
    row = torch.arange(rows, dtype=torch.float64).repeat_interleave(columns)
    column = torch.arange(columns, dtype=torch.float64).repeat(rows)
    features, window, result = [], [], []
    for down in range(rows):
        for across in range(columns):
            mirrored = (-down % rows, -across % columns)
            if mirrored < (down, across):
                continue  # the conjugate of a frequency that we had
            angle = 2 * torch.pi * (down * row / rows + across * column / columns)
            a, b, c, d = angle.cos(), -angle.sin(), angle.cos(), angle.sin()
            if mirrored == (down, across):
                features, window, result = [*features, a], [*window, c], [*result, a]
            else:
                features += [a + b, a, b]
                window += [c, d - c, c + d]
                result += [2 * (a + b), 2 * b, -2 * a]
    inside = [(row < tall) & (column < wide) for tall, wide in (positions, taps, outputs)]
    stacked = (torch.stack(features), torch.stack(window), torch.stack(result) / (rows * columns))
    first, second, third = (
        matrix[:, kept].to(dtype).contiguous() for matrix, kept in zip(stacked, inside, strict=True)
    )
    return first, second, third


def convolve_by_fourier(features: Tensor, weight: Tensor, sizes: Convolution) -> Tensor:
    """The convolution by transforms, whatever it costs."""
    total = _FourierConvolution.apply(features, weight, sizes)
    assert isinstance(total, Tensor)
    return total


class _FourierConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, sizes: Convolution) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.sizes = sizes
        b, g, a = _transforms(sizes, features.dtype)
        with borrow_workspace() as workspace:
            grid, window = _lay_out_features(features, sizes), _lay_out_weight(weight, sizes)
            total = grid.new_zeros(a.shape[1], sizes.examples * sizes.out_channels)
            for part, rooms in _in_parts(sizes, features, workspace):
                seen, kernel, answer = rooms
                torch.mm(b[part], grid, out=seen.flatten(1))
                torch.mm(g[part], window, out=kernel.flatten(1))
                torch.bmm(seen, kernel.mT, out=answer)
                total.addmm_(a[part].T, answer.flatten(1))
        rows, _ = sizes.outputs
        order = (
            torch.channels_last if _is_channels_last(features) or _is_channels_last(weight) else torch.contiguous_format
        )
        return rearrange(total, "(y x) (b o) -> b o y x", y=rows, b=sizes.examples).contiguous(memory_format=order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        features, weight = ctx.saved_tensors
        (grad,) = grads
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled() or are_batched(grads):
            return *_backward_by_torch(features, weight, grad, ctx.sizes, wanted), None
        with in_full_precision(grad.device), borrow_workspace() as workspace:
            return *_backward(features, weight, grad, ctx.sizes, wanted, workspace), None


def _backward(
    features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool], workspace: Workspace
) -> tuple[Tensor | None, Tensor | None]:
    b, g, a = _transforms(sizes, grad.dtype)
    back = rearrange(grad, "b o y x -> (y x) (b o)")
    grid, window = _lay_out_features(features, sizes), _lay_out_weight(weight, sizes)
    grid_grad = torch.zeros_like(grid) if wanted[0] else None
    window_grad = torch.zeros_like(window) if wanted[1] else None
    for part, rooms in _in_parts(sizes, grad, workspace):
        seen, kernel, answer = rooms
        torch.mm(a[part], back, out=answer.flatten(1))
        if grid_grad is not None:
            torch.mm(g[part], window, out=kernel.flatten(1))
            torch.bmm(answer, kernel, out=seen)
            grid_grad.addmm_(b[part].T, seen.flatten(1))
        if window_grad is not None:
            torch.mm(b[part], grid, out=seen.flatten(1))
            torch.bmm(answer.mT, seen, out=kernel)
            window_grad.addmm_(g[part].T, kernel.flatten(1))
    return (
        None if grid_grad is None else _take_back_features(grid_grad, sizes),
        None if window_grad is None else _take_back_weight(window_grad, sizes),
    )


def _backward_by_torch(
    features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients that can be differentiated once more, or of many gradients at once."""
    inputs = [tensor for tensor, needed in zip((features, weight), wanted, strict=True) if needed]
    with torch.enable_grad():
        total = F.conv2d(features, weight, None, sizes.stride, sizes.padding)
        found = iter(torch.autograd.grad(total, inputs, grad, create_graph=True))
    return next(found) if wanted[0] else None, next(found) if wanted[1] else None


def _in_parts(
    sizes: Convolution, like: Tensor, workspace: Workspace
) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
    """The points, as many at a time as the workspace keeps room for, with room for features, window and outputs."""
    b, i, o = sizes.examples, sizes.channels, sizes.out_channels
    points = count_points(*sizes.positions)
    most = max(1, MOST_KEPT // 2 // (like.element_size() * (b * i + i * o + b * o)))
    step = ceil(points / ceil(points / most))
    rooms = [workspace.take(shape, like) for shape in ((step, b, i), (step, o, i), (step, b, o))]
    for start in range(0, points, step):
        seen, kernel, answer = (room[: points - start] for room in rooms)
        yield slice(start, start + step), (seen, kernel, answer)
    for room in rooms:
        workspace.give(room)


def _transforms(sizes: Convolution, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    return make_transforms(sizes.positions, sizes.taps, sizes.outputs, dtype)


def _lay_out_features(features: Tensor, sizes: Convolution) -> Tensor:
    """``(position, example channel)``, with the positions between two steps among the channels."""
    padded = F.pad(features, _padding(sizes))
    down, across = sizes.stride
    return rearrange(padded, "b c (y v) (x u) -> (y x) (b v u c)", v=down, u=across)


def _take_back_features(grid: Tensor, sizes: Convolution) -> Tensor:
    (rows, _), (down, across) = sizes.positions, sizes.stride
    padded = rearrange(grid, "(y x) (b v u c) -> b (y v) (x u) c", y=rows, b=sizes.examples, v=down, u=across)
    return F.pad(padded.permute(0, 3, 1, 2), [-size for size in _padding(sizes)])


def _padding(sizes: Convolution) -> list[int]:
    """Columns before and after, rows before and after: what lies beyond the windows is cut off."""
    (rows, columns), (top, left) = sizes.inputs, sizes.padding
    height, width = (size * step for size, step in zip(sizes.positions, sizes.stride, strict=True))
    return [left, width - columns - left, top, height - rows - top]


def _lay_out_weight(weight: Tensor, sizes: Convolution) -> Tensor:
    """``(position, output channel)``, as the features."""
    (down, across), (missing_rows, missing_columns) = sizes.stride, _missing_taps(sizes)
    padded = F.pad(weight.permute(0, 2, 3, 1), (0, 0, 0, missing_columns, 0, missing_rows))
    return rearrange(padded, "o (y v) (x u) c -> (y x) (o v u c)", v=down, u=across)


def _take_back_weight(window: Tensor, sizes: Convolution) -> Tensor:
    (rows, _), (down, across) = sizes.taps, sizes.stride
    padded = rearrange(window, "(y x) (o v u c) -> o c (y v) (x u)", y=rows, o=sizes.out_channels, v=down, u=across)
    tall, wide = sizes.window
    return padded[:, :, :tall, :wide]


def _missing_taps(sizes: Convolution) -> tuple[int, int]:
    """Rows and columns that windows lack to be whole steps."""
    rows, columns = (tap * step - size for tap, step, size in zip(sizes.taps, sizes.stride, sizes.window, strict=True))
    return rows, columns


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
