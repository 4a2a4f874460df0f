"""Convolutions by a matrix product with features that are unfolded only in thought.

For few channels and for strides: little memory is moved besides features and outputs, which is what PyTorch's own
convolutions of large images spend most of their time on. All of it is compiled (``kernels/implicit.c``).
"""

from collections.abc import Sequence
from ctypes import byref

import torch
from torch import Tensor

from torchcaps.convolution.function import Gradients, NativeConvolution
from torchcaps.convolution.sizes import Convolution
from torchcaps.kernels.library import ImplicitJob, find_kernel
from torchcaps.kernels.workspace import Workspace

MOST_PARTS = 16
"""Parts of the examples with a gradient of the weights each: as many whatever the threads, so that results do not
depend on them."""

MOST_IN_PARTS = 16 << 20
"""Bytes of the gradients of all parts: a limit of memory."""


def convolve_by_product(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution) -> Tensor:
    """The convolution by an implicit product, whatever it costs; ``features`` are contiguous."""
    return _ImplicitProductConvolution.run(features, weight, bias, sizes)


class _ImplicitProductConvolution(NativeConvolution):
    @staticmethod
    def convolve(
        features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution, workspace: Workspace
    ) -> Tensor:
        total = features.new_empty(sizes.examples, sizes.out_channels, *sizes.outputs)
        # Few examples are not enough work for all threads: each makes some of the channels.
        parts = max(1, torch.get_num_threads() // sizes.examples)
        _run(sizes, parts, features, weight.contiguous(), bias=bias, outputs=total)
        return total

    @staticmethod
    def carry_back(
        features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool], workspace: Workspace
    ) -> Gradients:
        weight, grad = weight.contiguous(), grad.contiguous()
        parts = min(sizes.examples, MOST_PARTS, max(1, MOST_IN_PARTS // weight.nbytes))
        to_features = torch.empty_like(features) if wanted[0] else None
        to_parts = weight.new_zeros(parts, *weight.shape) if wanted[1] else None
        _run(sizes, parts, features, weight, outputs=grad, to_features=to_features, to_weight=to_parts, back=True)
        return to_features, None if to_parts is None else to_parts.sum(0)


def _run(
    sizes: Convolution, parts: int, features: Tensor, weight: Tensor, *, back: bool = False, **others: Tensor | None
) -> None:
    """The kernel on contiguous tensors."""
    counts = (sizes.examples, sizes.in_channels, sizes.out_channels, *sizes.inputs, *sizes.window, *sizes.stride)
    job = ImplicitJob(*counts, *sizes.padding, torch.get_num_threads(), back, parts)
    for name, tensor in {"features": features, "weight": weight, **others}.items():
        if tensor is not None:
            setattr(job, name, tensor.data_ptr())
    find_kernel("implicit", features.dtype)(byref(job))
    if job.failed:
        raise MemoryError(f"no memory for the planes of images of {job.rows} by {job.columns} pixels")
