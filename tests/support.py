"""What tests share: one comparison, one tolerance, one set of cases; and the project's scripts as modules."""

import importlib.util
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch
from torch import Tensor, nn

from torchcaps.routing import FixedPointRouting
from torchcaps.testing import DOUBLE, SINGLE_GRADIENT, SINGLE_VALUE, Function, assert_near, assert_same
from torchcaps.testing import differentiate as gradients
from torchcaps.testing import measure_error as relative_error

__all__ = [
    "DOUBLE",
    "SINGLE_GRADIENT",
    "SINGLE_VALUE",
    "Function",
    "assert_near",
    "assert_same",
    "gradients",
    "relative_error",
]

One = TypeVar("One")
Other = TypeVar("Other")
ROOT = Path(__file__).parent.parent
THOROUGH = bool(os.environ.get("TORCHCAPS_THOROUGH"))
"""Whether to try every combination, as ``make thorough`` does, where ``make test`` tries each option in some."""


def list_pairs(ones: Iterable[One], others: Iterable[Other], every: int = 2) -> list[tuple[One, Other]]:
    """Pairs in which each of the ones meets one in so many of the others and the other way round; or all pairs."""
    counted = product(enumerate(ones), enumerate(others))
    return [(one, other) for (n, one), (k, other) in counted if THOROUGH or (n + k) % every == 0]


def numbers(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal random numbers, the same for the same shape and seed in every precision."""
    generator = torch.Generator().manual_seed(seed + sum((n + 1) * size for n, size in enumerate(shape)))
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def converge_soon(module: nn.Module) -> None:
    """Let fixed-point routings converge in a few iterations, where their number is not what is tested."""
    for part in module.modules():
        if isinstance(part, FixedPointRouting):
            part.inverse_temperature, part.max_iters, part.traced_iters = 0.005, 8, 5


def script(name: str) -> ModuleType:
    """A program of the repository, imported by its path without the ending."""
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
