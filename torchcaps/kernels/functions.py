"""Kernels that autograd differentiates: squash and the score of its length."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

from torchcaps.kernels import library

Kernel = Callable[[Tensor, Tensor | None], Tensor]


def apply_kernel(kernel: Kernel, plain: Callable[[Tensor], Tensor], total: Tensor) -> Tensor:
    """``kernel(total)``, whose gradient is ``kernel(total, grad)``; derivatives of that are those of ``plain``."""
    if torch.is_grad_enabled() and total.requires_grad:
        return _Kernel.apply(total, kernel, plain)
    return kernel(total.contiguous(), None)


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, total: Tensor, kernel: Kernel, plain: Callable[[Tensor], Tensor]) -> Tensor:
        total = total.contiguous()
        ctx.save_for_backward(total)
        ctx.kernel, ctx.plain = kernel, plain
        return kernel(total, None)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        (total,) = ctx.saved_tensors
        # Someone will differentiate this gradient, or takes many at once.
        again = torch.is_grad_enabled()
        if again or is_legacy_batchedtensor(grad) or is_batchedtensor(grad):
            with torch.enable_grad():
                alias = total.view_as(total) if again else total.detach().requires_grad_()
                (found,) = torch.autograd.grad(ctx.plain(alias), alias, grad, create_graph=again)
            return found, None, None
        return ctx.kernel(total, grad.contiguous()), None, None


squash, length_score = library.squash, library.length_score
