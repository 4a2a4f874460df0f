"""What PyTorch is doing around a call: autocast, tracing, function transforms, forward-mode differentiation."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

from torchcaps.kernels.library import must_be_traceable

__all__ = ["are_batched", "in_full_precision", "is_full_precision", "must_be_traceable", "without_autocast"]


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Routing keeps the number type of its input. The backward pass needs this as much as the forward pass: it runs
    under the autocast state of the caller of ``backward()``, not under that of the forward pass."""
    # Meta tensors have none. Compilers see no meta tensors, and that of torch 2.6 cannot ask.
    if not torch.compiler.is_compiling() and not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


class _FullProducts:
    """Matrix products of single-precision numbers in single precision, whatever the user allows elsewhere (TF32 on
    GPUs, bfloat16 on CPUs): variances are differences of them.

    The setting belongs to the process, so the first to enter changes it and the last to leave puts it back.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._before: list[Any] = []

    def allowed(self) -> bool:
        """Whether products may be shortened now, so that there is something to do."""
        if _get_precision is None:
            return self._inside > 0 or any(backend.fp32_precision not in _WHOLE for backend in _PRODUCTS)
        return (
            self._inside > 0
            or _get_precision("cuda", "matmul") not in _WHOLE
            or _get_precision("mkldnn", "matmul") not in _WHOLE
        )

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [backend.fp32_precision for backend in _PRODUCTS]
                self._set(["ieee"] * len(_PRODUCTS))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)

    def _set(self, wanted: Sequence[Any]) -> None:
        for backend, precision in zip(_PRODUCTS, wanted, strict=True):
            if backend.fp32_precision != precision:
                backend.fp32_precision = precision


_BACKENDS: list[Any] = [getattr(backend, "matmul", None) for backend in (torch.backends.cuda, torch.backends.mkldnn)]
_PRODUCTS = [backend for backend in _BACKENDS if hasattr(backend, "fp32_precision")]
_full_products = _FullProducts()
_get_precision = getattr(torch._C, "_get_fp32_precision_getter", None)  # twenty times faster than the attributes
_WHOLE = ("ieee", "none")  # settings that shorten no product


def in_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Neither autocast nor shortened products, in a forward or a backward pass that nobody traces."""
    if is_full_precision(device):
        return _NOTHING  # as it nearly always is: small layers feel even this
    return _in_full_precision(device)


def is_full_precision(device: torch.device) -> bool:
    """Whether there is neither autocast nor shortened products here and now."""
    if torch._C._is_any_autocast_enabled():  # as it seldom is: small layers feel the questions that follow
        kind = device.type
        if (kind == "cpu" or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind):
            return False
    return not _full_products.allowed()


_NOTHING = nullcontext()


@contextmanager
def _in_full_precision(device: torch.device) -> Iterator[None]:
    with without_autocast(device), _full_products:
        yield


def are_batched(grads: Sequence[Tensor]) -> bool:
    """Whether a backward pass takes many gradients at once, as ``jacobian(vectorize=True)`` does: such tensors cannot
    be written to."""
    return any(is_legacy_batchedtensor(grad) or is_batchedtensor(grad) for grad in grads)
