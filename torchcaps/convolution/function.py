"""What autograd sees of a convolution that is not PyTorch's."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.convolution.sizes import Convolution
from torchcaps.kernels.modes import are_batched, in_full_precision
from torchcaps.kernels.workspace import Workspace, borrow_workspace

Gradients = tuple[Tensor | None, Tensor | None]
"""Of features and weights, as far as they are wanted."""


class NativeConvolution(torch.autograd.Function):
    """A convolution of features and weights of given sizes. Nothing but these is kept for the backward pass."""

    @staticmethod
    def convolve(
        features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution, workspace: Workspace
    ) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def carry_back(
        features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool], workspace: Workspace
    ) -> Gradients:
        raise NotImplementedError

    @classmethod
    def run(cls, features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Convolution) -> Tensor:
        """The convolution, differentiated to any order."""
        total = cls.apply(features, weight, bias, sizes, cls)
        assert isinstance(total, Tensor)
        return total

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        sizes: Convolution,
        way: type["NativeConvolution"],
    ) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.sizes, ctx.way = sizes, way
        with borrow_workspace() as workspace:
            return way.convolve(features, weight, bias, sizes, workspace)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        features, weight = ctx.saved_tensors
        (grad,) = grads
        wanted = ctx.needs_input_grad[:2]
        to_bias = grad.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        if not any(wanted):
            return None, None, to_bias, None, None
        if torch.is_grad_enabled() or are_batched(grads):
            return *differentiate_by_torch(features, weight, grad, ctx.sizes, wanted), to_bias, None, None
        with in_full_precision(grad.device), borrow_workspace() as workspace:
            return *ctx.way.carry_back(features, weight, grad, ctx.sizes, wanted, workspace), to_bias, None, None


def add_bias(total: Tensor, bias: Tensor | None) -> Tensor:
    """The outputs with a number for each channel added, in place."""
    return total if bias is None else total.add_(bias[:, None, None])


def differentiate_by_torch(
    features: Tensor, weight: Tensor, grad: Tensor, sizes: Convolution, wanted: Sequence[bool]
) -> Gradients:
    """The gradients of features and weights, by PyTorch's own convolution: they can be differentiated once more, and
    many can be taken at once."""
    inputs = [tensor for tensor, needed in zip((features, weight), wanted, strict=True) if needed]
    with torch.enable_grad():
        total = F.conv2d(features, weight, None, sizes.stride, sizes.padding)
        found = iter(torch.autograd.grad(total, inputs, grad, create_graph=True))
    return next(found) if wanted[0] else None, next(found) if wanted[1] else None
