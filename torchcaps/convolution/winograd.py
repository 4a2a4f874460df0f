"""Windows of 3×3 by Winograd's transforms: tiles of 4×4 outputs, with a quarter of the multiplications.

The transforms of features and outputs are compiled (``kernels/winograd.c``), those of the weights are a product with a
constant matrix; for each of 36 points the products over channels are one matrix product. Some examples at a time, so
that their points stay in cache.
"""

from collections.abc import Iterator, Sequence
from ctypes import byref
from functools import lru_cache
from math import ceil, prod

import torch
from torch import Tensor

from torchcaps.convolution.function import Gradients, NativeConvolution, add_bias
from torchcaps.convolution.sizes import POINTS, Convolution
from torchcaps.kernels.library import WinogradJob, find_kernel
from torchcaps.kernels.workspace import Workspace

NEAR, FAR = 0.75, 1.5
"""Where polynomials are evaluated, besides 0 and infinity: these and their negatives, as in ``kernels/winograd.c``.
They are exact in binary, and results have half the rounding errors of the usual 1 and 2."""

FEWEST_TILES = 128
"""Tiles that are transformed together; more if there are more channels, so that weights are not read too often.
Measured by ``python -m benchmarks.fit_limits``."""

MOST_ACROSS = 256  # tiles in a row: the kernels keep what belongs to one on the stack
_SEE, _SEE_BACK, _ANSWER, _ANSWER_BACK = range(4)


def is_fit_for_winograd(sizes: Convolution) -> bool:
    """Whether the transforms are for such sizes: 3×3, a stride of one, padding that leaves something to see."""
    square = sizes.window == (3, 3) and sizes.stride == (1, 1)
    return square and max(sizes.padding) <= 2 and sizes.tiles[1] <= MOST_ACROSS


def convolve_by_winograd(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution) -> Tensor:
    """The convolution by transforms, whatever it costs; ``features`` are contiguous."""
    return _WinogradConvolution.run(features, weight, bias, sizes)


class _WinogradConvolution(NativeConvolution):
    @staticmethod
    def convolve(
        features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution, workspace: Workspace
    ) -> Tensor:
        kernel = _transform_weight(weight)
        total = features.new_empty(sizes.examples, sizes.out_channels, *sizes.outputs)
        for part, seen, answer in _in_parts(sizes, features, workspace):
            _transform(_SEE, features[part], seen, sizes)
            torch.bmm(kernel, seen, out=answer)
            _transform(_ANSWER, total[part], answer, sizes)
        return add_bias(total, bias)

    @staticmethod
    def carry_back(
        features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool], workspace: Workspace
    ) -> Gradients:
        grad, kernel = grad.contiguous(), _transform_weight(weight)
        to_features = torch.empty_like(features) if wanted[0] else None
        to_kernel = torch.zeros_like(kernel) if wanted[1] else None
        for part, seen, answer in _in_parts(sizes, features, workspace):
            _transform(_ANSWER_BACK, grad[part], answer, sizes)
            if to_kernel is not None:
                _transform(_SEE, features[part], seen, sizes)
                to_kernel.baddbmm_(answer, seen.mT)
            if to_features is not None:
                torch.bmm(kernel.mT, answer, out=seen)
                _transform(_SEE_BACK, to_features[part], seen, sizes)
        return to_features, None if to_kernel is None else _transform_weight_back(to_kernel, weight)


def _in_parts(sizes: Convolution, like: Tensor, workspace: Workspace) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some examples at a time, with room for the points of their features and outputs, ``(point, channel, tile)``."""
    tiles, widths = prod(sizes.tiles), (sizes.in_channels, sizes.out_channels)
    step = min(sizes.examples, ceil(max(FEWEST_TILES, *widths) / tiles))
    rooms = [workspace.take((POINTS, width, step * tiles), like) for width in widths]
    for start in range(0, sizes.examples, step):
        many = min(step, sizes.examples - start) * tiles
        seen, answer = (
            room.flatten()[: POINTS * width * many].view(POINTS, width, many)
            for room, width in zip(rooms, widths, strict=True)
        )
        yield slice(start, start + step), seen, answer
    for room in rooms:
        workspace.give(room)


def _transform(step: int, image: Tensor, points: Tensor, sizes: Convolution) -> None:
    """One of the steps of the kernel, from images to points or back."""
    padding = sizes.padding if step in (_SEE, _SEE_BACK) else (0, 0)
    counts = (*image.shape, *padding, *sizes.tiles, step, torch.get_num_threads())
    job = WinogradJob(*counts, image.data_ptr(), points.data_ptr())
    find_kernel("winograd", image.dtype)(byref(job))


def _transform_weight(weight: Tensor) -> Tensor:
    """The points of the weights, ``(point, output channel, input channel)``."""
    above, below = weight.shape[:2]
    return (_make_matrix(weight.dtype) @ weight.reshape(above * below, 9).T).view(POINTS, above, below)


def _transform_weight_back(points: Tensor, weight: Tensor) -> Tensor:
    # The product is the faster way round, and the copy cheap.
    return (_make_matrix(weight.dtype).T @ points.view(POINTS, -1)).T.contiguous().view(weight.shape)


@lru_cache(maxsize=2)
def _make_matrix(dtype: torch.dtype) -> Tensor:
    """``G`` for rows and columns at once, ``(point, place in the window)``.

    With the polynomial ``x (x² - a²) (x² - b²)`` of the finite points, a point's row is its powers, divided by the
    derivative of the polynomial there.
    """
    near, far = NEAR**2, FAR**2
    rows = [[1.0 / (near * far), 0.0, 0.0]]
    for point in (NEAR, -NEAR, FAR, -FAR):
        slope = 5 * point**4 - 3 * (near + far) * point**2 + near * far
        rows.append([1.0 / slope, point / slope, point**2 / slope])
    one = torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64)
    return torch.kron(one, one).to(dtype)
