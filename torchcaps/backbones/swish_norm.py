"""Swish and the batch norm after it as one operation, on a CPU.

Of large images, writing and reading results takes longer than making them. Here neither Swish's results nor their
gradients are written; the backward pass makes them again (``kernels/norm.c``).
"""

from ctypes import byref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.kernels.library import NormJob, find_kernel, take_kernels
from torchcaps.kernels.modes import are_batched, is_full_precision


def swish_and_norm(features: Tensor, swish: nn.Module, norm: nn.Module) -> Tensor:
    """``norm(swish(features))``, as one operation where that can be.

    Args:
        features: ``(b, channel, row, column)``.
        swish: the activation.
        norm: the batch norm that follows it; its running mean and variance are updated as ever.

    Returns:
        The features, normalized.
    """
    if not isinstance(norm, nn.BatchNorm2d) or not _is_one(features, swish, norm):
        return norm(swish(features))
    found = _SwishNorm.apply(features, norm.weight, norm.bias, norm.eps)
    assert isinstance(found, tuple)
    total, mean, variance = found
    if norm.track_running_stats:
        _track(norm, mean, variance, features.numel() // features.shape[1])
    return total


def _is_one(features: Tensor, swish: nn.Module, norm: nn.BatchNorm2d) -> bool:
    plain = type(swish) is nn.SiLU and type(norm) is nn.BatchNorm2d and not swish.inplace
    if not plain or not norm.training or not norm.affine or not take_kernels(features):
        return False
    watched = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in (swish, norm))
    same = features.dtype == norm.weight.dtype and features.dim() == 4 and features.shape[1] == norm.num_features
    several = same and features.is_contiguous() and features.numel() > features.shape[1]
    return several and not watched and is_full_precision(features.device)


def _track(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int) -> None:
    """The running mean and variance, as ``nn.BatchNorm2d`` keeps them."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance * (count / (count - 1)), share)


class _SwishNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        total, mean, variance = torch.empty_like(features), torch.empty_like(weight), torch.empty_like(weight)
        _run(features, eps, weight=weight, bias=bias, mean=mean, variance=variance, to=total)
        ctx.save_for_backward(features, weight, bias, mean, variance)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance)
        return total, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        features, weight, bias, mean, variance = ctx.saved_tensors
        grad = grads[0]
        if torch.is_grad_enabled() or are_batched(grads[:1]):
            leaves = [
                leaf for leaf, needed in zip((features, weight, bias), ctx.needs_input_grad, strict=False) if needed
            ]
            with torch.enable_grad():
                total = F.batch_norm(F.silu(features), None, None, weight, bias, training=True, eps=ctx.eps)
                found = iter(torch.autograd.grad(total, leaves, grad, create_graph=True))
            to_features, to_weight, to_bias = (next(found) if needed else None for needed in ctx.needs_input_grad[:3])
            return to_features, to_weight, to_bias, None
        to_features, to_weight, to_bias = torch.empty_like(features), torch.empty_like(weight), torch.empty_like(bias)
        _run(
            features, ctx.eps, weight=weight, mean=mean, variance=variance, grad=grad.contiguous(), to=to_features,
            to_weight=to_weight, to_bias=to_bias,
        )  # fmt: skip
        return to_features, to_weight, to_bias, None


def _run(features: Tensor, eps: float, **tensors: Tensor) -> None:
    """The kernel on contiguous tensors."""
    job = NormJob(*features.shape[:2], features[0, 0].numel(), torch.get_num_threads(), eps, features.data_ptr())
    for name, tensor in tensors.items():
        setattr(job, name, tensor.data_ptr())
    find_kernel("norm", features.dtype)(byref(job))
