"""The digamma function, also where PyTorch's own cannot go."""

import torch
from jaxtyping import Float
from torch import Tensor

SHIFT = 8
"""By how much the argument is raised before the series: its error is then below a rounding of double precision."""
# B_2k / 2k of the asymptotic series ψ(x) = ln x - 1/2x - Σ_k (B_2k / 2k) x^-2k
SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)

_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # from torch 2.7 on


def digamma(x: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """``ψ(x)``, the derivative of ``ln Γ(x)``, of positive numbers.

    ONNX has no such operator: while an exporter looks on, ``ψ`` is written out in ordinary operations.

    >>> digamma(torch.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """
    return sum_series(x) if _is_exporting() or torch.jit.is_tracing() else torch.digamma(x)


def sum_series(x: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """``ψ(x)`` by its recurrence, ``ψ(x) = ψ(x + 1) - 1/x``, and then by its asymptotic series.

    >>> sum_series(torch.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """
    steps = torch.arange(SHIFT, dtype=x.dtype, device=x.device)
    below = (x.unsqueeze(-1) + steps).reciprocal().sum(-1)
    raised = x + SHIFT
    square = raised.reciprocal().square()
    tail = torch.zeros_like(square)
    for coefficient in reversed(SERIES):
        tail = (tail + coefficient) * square
    return raised.log() - 0.5 * raised.reciprocal() - tail - below
