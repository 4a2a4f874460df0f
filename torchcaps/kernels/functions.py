"""Kernels that autograd differentiates."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

Gradients = Sequence[Tensor | None]


class Kernel(NamedTuple):
    """A computation by a kernel, its way back, and the same in PyTorch's operations, which can be differentiated again.

    Args:
        forward: tensors to one result, or to several.
        backward: the same tensors, the gradients of the results and which tensors want one, to their gradients.
        plain: tensors to the same results.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Gradients]
    plain: Callable[..., Any]


def apply_kernel(kernel: Kernel, *tensors: Tensor | None) -> Any:
    """``kernel.forward(*tensors)``, differentiated to any order."""
    if torch.is_grad_enabled():
        for tensor in tensors:  # no generator: small layers feel it
            if tensor is not None and tensor.requires_grad:
                return _apply(kernel, *tensors)
    return kernel.forward(*tensors)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernel: Kernel, *tensors: Tensor | None):
        ctx.kernel = kernel
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return kernel.forward(*tensors)

    @staticmethod
    def backward(ctx, *grads: Tensor | None):
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        if grads[0] is None and all(grad is None for grad in grads):
            return None, *([None] * len(tensors))
        # Someone will differentiate this gradient, or takes many at once.
        if torch.is_grad_enabled() or _are_batched(grads):
            return None, *differentiate(ctx.kernel.plain, tensors, grads, wanted)
        return None, *ctx.kernel.backward(tensors, grads, wanted)


# ``_Apply.apply`` without the search for tensors of function transforms, under which nobody comes here.
_apply: Callable[..., Any] = super(torch.autograd.function._SingleLevelFunction, _Apply).apply  # pyright: ignore[reportAttributeAccessIssue]


def _are_batched(grads: Gradients) -> bool:
    for grad in grads:  # noqa: SIM110
        if grad is not None and (is_legacy_batchedtensor(grad) or is_batchedtensor(grad)):
            return True
    return False


def differentiate(plain: Callable[..., Any], tensors: Gradients, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
    """The gradients of ``plain(*tensors)`` in those tensors that want one, by autograd."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # On from aliases to the tensors themselves, if the gradient has a graph of its own.
        inputs = [
            tensor if tensor is None else tensor.view_as(tensor) if again else tensor.detach().requires_grad_(want)
            for tensor, want in zip(tensors, wanted, strict=True)
        ]
        results = plain(*inputs)
        results = (results,) if isinstance(results, Tensor) else results
        used = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
        if not used:
            return [None] * len(inputs)
        ends = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want and tensor is not None]
        outputs, arriving = zip(*used, strict=True)
        found = iter(torch.autograd.grad(outputs, ends, arriving, create_graph=again, allow_unused=True))
    return [next(found) if want else None for want in wanted]
