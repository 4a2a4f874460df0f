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
from functools import lru_cache
from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from torchcaps.convolution.sizes import Convolution, count_points
from torchcaps.convolution.twice import differentiate_by_torch
from torchcaps.kernels.modes import are_batched, in_full_precision
from torchcaps.kernels.workspace import MOST_KEPT, Workspace, borrow_workspace


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
            return *differentiate_by_torch(features, weight, grad, ctx.sizes, wanted), None
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
