"""Large convolutions on a CPU, with a sixth of the multiplications.

CapsNet spends most of its time in one convolution: 9×9 windows, 256 channels in and out. Fourier transforms turn a
convolution into a product for each frequency. Three things make that pay on grids of ten positions or so:

- a stride is undone first: the positions between two steps become channels, so that a window of 9×9 with a stride of 2
  is one of 5×5 with a stride of 1 over four times the channels;
- a product of two complex numbers takes three real ones, and the sums that this needs are part of the transforms, which
  are compiled (``kernels/fourier.c``) and read and write tensors as they lie in memory;
- for each of these points the products over channels are one matrix product, and the points of a few channels at a time
  stay in cache.
"""

from collections.abc import Iterator, Sequence
from ctypes import byref
from functools import lru_cache

import torch
from torch import Tensor

from torchcaps.convolution.function import Gradients, NativeConvolution, add_bias
from torchcaps.convolution.sizes import LANES, Convolution, count_points
from torchcaps.kernels.library import FourierJob, find_kernel
from torchcaps.kernels.workspace import Workspace

MOST_AT_ONCE = 8 << 20
"""Bytes of the points of features and weights that are made at a time. Measured by ``python -m
benchmarks.fit_limits``."""

_FEATURES, _WINDOW, _OUTPUTS = range(3)


def convolve_by_fourier(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution) -> Tensor:
    """The convolution by transforms, whatever it costs."""
    return _FourierConvolution.run(features, weight, bias, sizes)


class _FourierConvolution(NativeConvolution):
    @staticmethod
    def convolve(
        features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution, workspace: Workspace
    ) -> Tensor:
        features, weight = _make_dense(features), _make_dense(weight)
        order = (
            torch.channels_last if _is_channels_last(features) or _is_channels_last(weight) else torch.contiguous_format
        )
        shape = (sizes.examples, sizes.out_channels, *sizes.outputs)
        total = torch.empty(shape, dtype=features.dtype, memory_format=order)
        answer = workspace.take((count_points(*sizes.positions), *shape[:2]), features)
        for channels, seen, kernel in _in_blocks(sizes, features, workspace):
            _transform(_FEATURES, features, seen, sizes, channels)
            _transform(_WINDOW, weight, kernel, sizes, channels)
            if channels.start == 0:
                torch.bmm(seen, kernel.mT, out=answer)
            else:
                answer.baddbmm_(seen, kernel.mT)
        _transform(_OUTPUTS, total, answer, sizes, slice(0, sizes.out_channels), back=True)
        workspace.give(answer)
        return add_bias(total, bias)

    @staticmethod
    def carry_back(
        features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool], workspace: Workspace
    ) -> Gradients:
        features, weight, grad = _make_dense(features), _make_dense(weight), _make_dense(grad)
        to_features = torch.empty_like(features) if wanted[0] else None
        to_weight = torch.empty_like(weight) if wanted[1] else None
        answer = workspace.take((count_points(*sizes.positions), *grad.shape[:2]), grad)
        _transform(_OUTPUTS, grad, answer, sizes, slice(0, sizes.out_channels))
        for channels, seen, kernel in _in_blocks(sizes, grad, workspace):
            if to_features is not None:
                _transform(_WINDOW, weight, kernel, sizes, channels)
                torch.bmm(answer, kernel, out=seen)
                _transform(_FEATURES, to_features, seen, sizes, channels, back=True)
            if to_weight is not None:
                _transform(_FEATURES, features, seen, sizes, channels)
                torch.bmm(answer.mT, seen, out=kernel)
                _transform(_WINDOW, to_weight, kernel, sizes, channels, back=True)
        workspace.give(answer)
        return to_features, to_weight


def _in_blocks(sizes: Convolution, like: Tensor, workspace: Workspace) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some input channels at a time, with room for the points of features and weights, ``(point, example or output
    channel, channel after the stride is undone)``."""
    points, rows = count_points(*sizes.positions), (sizes.examples, sizes.out_channels)
    places = sizes.channels // sizes.in_channels
    most = MOST_AT_ONCE // (like.element_size() * points * places * sum(rows))
    step = min(sizes.in_channels, max(1, most // LANES) * LANES)
    rooms = [workspace.take((points * row * places * step,), like) for row in rows]
    for start in range(0, sizes.in_channels, step):
        width = places * min(step, sizes.in_channels - start)
        seen, kernel = (
            room[: points * row * width].view(points, row, width) for room, row in zip(rooms, rows, strict=True)
        )
        yield slice(start, start + width // places), seen, kernel
    for room in rooms:
        workspace.give(room)


def _transform(
    kind: int, images: Tensor, points: Tensor, sizes: Convolution, channels: slice, *, back: bool = False
) -> None:
    """Some channels of features, weights or outputs to points, or back."""
    outputs = kind == _OUTPUTS
    job = FourierJob(
        *images.shape,
        channels.start, channels.stop - channels.start,
        *(sizes.padding if kind == _FEATURES else (0, 0)),
        *((1, 1) if outputs else sizes.stride),
        *(sizes.outputs if outputs else sizes.taps if kind == _WINDOW else sizes.positions),
        *sizes.positions,
        kind, back, _is_channels_last(images), torch.get_num_threads(), 0, points.stride(0),
        images.data_ptr(), points.data_ptr(),
        *(_make_matrix(size, scaled=outputs, dtype=images.dtype).data_ptr() for size in sizes.positions),
    )  # fmt: skip
    find_kernel("fourier", images.dtype)(byref(job))
    if job.failed:
        raise MemoryError(f"no memory to transform planes of {job.rows} by {job.columns}")


@lru_cache(maxsize=64)
def _make_matrix(size: int, *, scaled: bool, dtype: torch.dtype) -> Tensor:
    """The cosines and sines of each frequency, ``(frequency, position)``: first those that have no sine."""
    angle = 2 * torch.pi * torch.arange(size, dtype=torch.float64) / size
    plain = [0, size // 2] if size % 2 == 0 else [0]
    rows = [(angle * frequency).cos() for frequency in plain]
    for frequency in range(1, (size + 1) // 2):
        rows += [(angle * frequency).cos(), (angle * frequency).sin()]
    return (torch.stack(rows) / (size if scaled else 1)).to(dtype).contiguous()


def _make_dense(tensor: Tensor) -> Tensor:
    return tensor if _is_channels_last(tensor) else tensor.contiguous()


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
