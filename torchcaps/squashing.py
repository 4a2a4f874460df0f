"""Ways to squash vectors into poses, by name: that of Sabour 2017 and that of Efficient-CapsNet 2021."""

from collections.abc import Callable
from math import log
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules, length_score, squash, squash_and_score
from torchcaps.kernels import few
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import take_kernels

__all__ = ["SQUASHES", "Squash", "exponential_length_score", "exponential_squash", "squash_to_capsules"]


def exponential_squash(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Shrink each vector to a length below one that grows linearly at first (Efficient-CapsNet 2021).

    Short vectors stay nearly as they are, where ``squash`` makes them much shorter. Zero stays zero, with the identity
    as its gradient, which is what short vectors have.

    Args:
        total: vectors s.

    Shape:
        - total: ``(*b, d)``; the result has the same shape.

    Returns:
        ``s / ‖s‖ · (1 - exp(-‖s‖))``, of length 0 to 1.

    Example:
        >>> exponential_squash(torch.tensor([3.0, 4.0])).norm()  # 1 - exp(-5)
        tensor(0.9933)
    """
    if total.shape[-1] == 0:
        raise ValueError(f"squash needs vectors of at least one number; got shape {tuple(total.shape)}")
    return _squash_exponentially(total)[0]


def exponential_length_score(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """The score whose presence is the length of ``exponential_squash(total)``: ``log(exp(‖s‖) - 1)``.

    Args:
        total: vectors s.

    Shape:
        - total: ``(*b, d)``; the result is ``(*b,)``.

    Returns:
        The scores; that of a zero vector is as low as the number type can say, with gradient zero.

    Example:
        >>> exponential_length_score(torch.tensor([3.0, 4.0])).sigmoid()
        tensor(0.9933)
    """
    return _squash_exponentially(total)[1]


def _squash_exponentially(total: Tensor) -> tuple[Tensor, Tensor]:
    """Poses and scores together: they share their lengths."""
    if total.numel() > 0 and take_kernels(total):
        return apply_kernel(_EXPONENTIAL, total)
    return _squash_plainly(total)


def _squash_plainly(total: Tensor) -> tuple[Tensor, Tensor]:
    # In units of the largest component, where that is above one, no square overflows.
    unit = total.detach().abs().amax(-1, keepdim=True).clamp_min(1.0)
    scaled = total / unit
    squares = scaled.square().sum(-1, keepdim=True)
    there = squares > 0
    in_units = torch.where(there, squares, 1.0).sqrt()
    length = unit * in_units
    # 1 - exp(-‖s‖) without cancellation, by what ONNX has: 2t / (1 + t) with t = tanh(‖s‖ / 2).
    half = (0.5 * length).tanh()
    short = 2.0 * half / (1.0 + half)
    pose = torch.where(there, scaled * (short / in_units), total)
    score = torch.where(there, length + short.log(), log(torch.finfo(total.dtype).tiny))
    return pose, score.squeeze(-1)


_EXPONENTIAL = Kernel(
    lambda total: few.squash(total.contiguous(), "exponential"),
    lambda tensors, grads, wanted: [few.carry_squash_back(tensors[0].contiguous(), *grads, kernel="exponential")],
    _squash_plainly,
)


class Squash(NamedTuple):
    """A way to shrink vectors to a length below one, and the score whose presence is that length.

    Args:
        pose: from vectors to shorter ones of the same direction.
        score: from the same vectors to scores.
        both: the two together, where that takes less time.

    Example:
        >>> SQUASHES["exponential"].pose(torch.zeros(3))
        tensor([0., 0., 0.])
    """

    pose: Callable[[Tensor], Tensor]
    score: Callable[[Tensor], Tensor]
    both: Callable[[Tensor], tuple[Tensor, Tensor]]


SQUASHES: dict[str, Squash] = {
    "rational": Squash(squash, length_score, squash_and_score),
    "exponential": Squash(exponential_squash, exponential_length_score, _squash_exponentially),
}
"""Squashes by name: ``"rational"`` is Sabour's, ``"exponential"`` that of Efficient-CapsNet."""


def check_squash(kind: str) -> str:
    if kind not in SQUASHES:
        raise ValueError(f"no squash {kind!r}; there are {', '.join(map(repr, SQUASHES))}")
    return kind


def squash_to_capsules(total: Float[Tensor, "*b d"], kind: str = "rational") -> Capsules:
    """Capsules whose poses are squashed vectors, with the lengths as presences.

    Args:
        total: vectors s.
        kind: a key of ``SQUASHES``.

    Shape:
        - total: ``(*b, n, d)``; poses have the same shape, scores are ``(*b, n)``.

    Returns:
        The capsules.

    Example:
        >>> capsules = squash_to_capsules(torch.randn(2, 5, 8))
        >>> torch.allclose(capsules.presence, capsules.pose.norm(dim=-1))
        True
    """
    return Capsules(*SQUASHES[check_squash(kind)].both(total))
