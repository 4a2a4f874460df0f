"""What PyTorch is doing around a call: autocast, tracing, function transforms, forward-mode differentiation."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor
from torch.autograd import forward_ad


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Routing keeps the number type of its input. The backward pass needs this as much as the forward pass: it runs
    under the autocast state of the caller of ``backward()``, not under that of the forward pass."""
    if not torch.amp.is_autocast_available(device.type):  # meta tensors
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def must_be_traceable(tensors: Sequence[Tensor]) -> bool:
    """Whether someone looks through the operations: a compiler, an exporter, a tracer, a function transform or
    forward-mode differentiation. Meta tensors have no numbers that a block could look at."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or any(tensor.is_meta for tensor in tensors)
    )


def are_batched(grads: Sequence[Tensor]) -> bool:
    """Whether a backward pass takes many gradients at once, as ``jacobian(vectorize=True)`` does: such tensors cannot
    be written to."""
    return any(is_legacy_batchedtensor(grad) or is_batchedtensor(grad) for grad in grads)
