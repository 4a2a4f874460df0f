"""What tests share: one comparison, one tolerance, one set of cases; and the project's scripts as modules."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

# Relative to the largest number of a tensor. Double precision leaves rounding only; single precision is held to the
# library's promise.
DOUBLE = 1e-10
SINGLE_VALUE, SINGLE_GRADIENT = 1e-5, 1e-4

ROOT = Path(__file__).parent.parent

Function = Callable[..., Sequence[Tensor | None]]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    if not expected.numel():
        return 0.0
    largest = expected.detach().abs().max().double().clamp_min(1e-30)
    return float((actual.detach().double() - expected.detach().double()).abs().max() / largest)


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = DOUBLE) -> None:
    error = relative_error(actual, expected)
    assert error <= tolerance, f"relative error {error:.1e} is above {tolerance:.0e}"


def gradients(function: Function, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and the gradients of one fixed projection of them in all inputs (zeros where there is none)."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    results = [result for result in function(*leaves) if result is not None]
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]
    total = sum(((r * w).sum() for r, w in zip(results, weights, strict=True)), results[0].new_zeros(()))
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return results, [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def assert_same(
    function: Function,
    reference: Function,
    inputs: Sequence[Tensor],
    value: float = DOUBLE,
    gradient: float = DOUBLE,
    reference_inputs: Sequence[Tensor] | None = None,
) -> None:
    """The two functions agree in value and in gradient."""
    results, found = gradients(function, inputs)
    expected, wanted = gradients(reference, inputs if reference_inputs is None else reference_inputs)
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert_near(result, right, value)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other, gradient)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal random numbers, the same for the same shape and seed in every precision."""
    generator = torch.Generator().manual_seed(seed + sum((n + 1) * size for n, size in enumerate(shape)))
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def script(name: str) -> ModuleType:
    """A program of the repository, imported by its path without the ending."""
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
