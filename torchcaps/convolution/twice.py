"""Gradients of a convolution that can be differentiated once more, or of many gradients at once."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.convolution.sizes import Convolution


def differentiate_by_torch(
    features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of features and weights, by PyTorch's own convolution."""
    inputs = [tensor for tensor, needed in zip((features, weight), wanted, strict=True) if needed]
    with torch.enable_grad():
        total = F.conv2d(features, weight, None, sizes.stride, sizes.padding)
        found = iter(torch.autograd.grad(total, inputs, grad, create_graph=True))
    return next(found) if wanted[0] else None, next(found) if wanted[1] else None
