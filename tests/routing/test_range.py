"""Results and gradients are finite over the range that docs/precision.md gives."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.routing.cases import BY_NAME
from tests.support import numbers
from torchcaps.votes import Votes, dense_votes, shared_votes

# Largest votes in single precision whose poses and scores have finite gradients, and the same with variances.
SINGLE = {
    "dynamic": (1e17, 1e17),
    "dynamic-all": (1e17, 1e17),
    "attention": (1e17, 1e17),
    "em": (1e12, 1e9),
    "heinsen": (1e12, 1e9),
    "heinsen-kmeans": (1e17, 1e17),
    "fm": (1e13, 1e13),
    "fm-plain": (1e17, 1e17),
    "fixed-point": (1e17, 1e17),
    "self-attention": (1e12, 1e12),
    "self-attention-without-prior": (1e12, 1e12),
    "uniform": (1e17, 1e17),
    "uniform-children": (1e17, 1e17),
    "self-routing": (1e17, 1e17),
    "vb": (1e12, 1e9),
}
# Half precision ends at 65,504, and so do the gradients of its tensors, which are sums over examples and children.
HALF = dict.fromkeys(SINGLE, (100.0, 30.0)) | {"fm-plain": (30.0, 30.0)}
LARGEST_HALF, LARGEST_SINGLE = 1e4, 1e17  # for results

Make = Callable[[Sequence[Tensor]], Votes | Tensor]
KINDS: dict[str, tuple[list[Tensor], Make]] = {
    "tensor": ([numbers(2, 12, 3, 4)], lambda t: t[0]),
    "dense": ([numbers(2, 12, 4), numbers(12, 3, 2, 2, scale=0.5)], lambda t: dense_votes(t[0], t[1], rows=2)),
    "closed": (
        [numbers(2, 12, 4), numbers(3, 2, 2, scale=0.5)],
        lambda t: shared_votes(t[0], t[1], rows=2, method="closed"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("with_variance", [False, True], ids=["poses-and-scores", "variances-too"])
def test_the_documented_range(kind: str, name: str, dtype: torch.dtype, with_variance: bool) -> None:
    case, (tensors, make) = BY_NAME[name], KINDS[kind]
    half = dtype == torch.float16
    largest = (HALF if half else SINGLE)[name][with_variance]
    for size in (1e-4, 1.0, largest, LARGEST_HALF) if half else (1e-30, 1e-6, 1.0, largest, LARGEST_SINGLE):
        scaled = [size * tensors[0], *tensors[1:], *case.tensors((2,), 12, 3, 4)]
        inputs = [tensor.to(dtype).requires_grad_() for tensor in scaled]
        found: list[Any] = case.run(make(inputs[: len(tensors)]), *inputs[len(tensors) :])
        results = [result for result in found[: 3 if with_variance else 2] if result is not None]
        assert all(bool(result.isfinite().all()) for result in results), f"results at {size}"
        if size <= largest:
            gradients = torch.autograd.grad([result.sum() for result in results], inputs, allow_unused=True)
            assert all(bool(g.isfinite().all()) for g in gradients if g is not None), f"gradients at {size}"
