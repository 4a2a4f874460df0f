"""Few votes that are there as numbers ``(n, q, j, i, p)``, by the kernels of ``few.c``; plain calls, since each of them
takes about as long as it takes Python to make it.

Weights of pairs are ``(n, q, i, j or 1)``, what belongs to parents is ``(n, q, j, p)``.
"""

from ctypes import byref
from math import log

import torch
from torch import Tensor

from torchcaps.kernels.library import Sizes, find_kernel


def make_votes(pose: Tensor, weight: Tensor) -> Tensor:
    """Few votes ``(n, q, j, i, c h)`` of contiguous poses ``(n, q, i, c, d)`` and weights ``(t, j, d, h)``, at once."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    made = pose.new_empty(n, q, j, i, c * h)
    sizes = Sizes(n * q, i // t, t, j, c, d, h, 0, 1)
    find_kernel("make", pose.dtype)(byref(sizes), pose.data_ptr(), weight.data_ptr(), made.data_ptr())
    return made


def carry_votes_back(pose: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients in the poses and weights of ``make_votes``, from that in the votes."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    to_pose, to_weight, room = torch.empty_like(pose), torch.empty_like(weight), pose.new_empty(d * h)
    find_kernel("carry_few", pose.dtype)(
        n * q, i // t, t, j, c, d, h, pose.data_ptr(), weight.data_ptr(), grad.data_ptr(), to_pose.data_ptr(),
        to_weight.data_ptr(), room.data_ptr(),
    )  # fmt: skip
    return to_pose, to_weight


def derive(
    values: Tensor, pairs: Tensor | None = None, center: Tensor | None = None, linear: Tensor | None = None,
    square: Tensor | None = None, *, to_values: Tensor | None = None, to_pairs: Tensor | None = None,
    to_linear: Tensor | None = None, to_square: Tensor | None = None, power: int = 1,
) -> None:  # fmt: skip
    """Write the derivatives of ``sum a b (v - center) + a**power s (v - center)**2`` to the tensors that are given for
    them: in the votes, in the weights ``a`` of pairs ``(n, q, j or 1, i)``, in ``b`` (linear) and in ``s`` (square)."""
    n, q, j, i, p = values.shape
    room = None if center is None else values.new_empty(4 * p)
    of_pairs = pairs if to_pairs is None else to_pairs
    find_kernel("derive", values.dtype)(
        n * q * j, j, of_pairs.shape[2] if of_pairs is not None else j, i, p, power,
        values.data_ptr(),
        None if pairs is None else pairs.data_ptr(),
        None if center is None else center.data_ptr(),
        None if linear is None else linear.data_ptr(),
        None if square is None else square.data_ptr(),
        None if to_values is None else to_values.data_ptr(),
        None if to_pairs is None else to_pairs.data_ptr(),
        None if to_linear is None else to_linear.data_ptr(),
        None if to_square is None else to_square.data_ptr(),
        None if room is None else room.data_ptr(),
    )  # fmt: skip


def sum_over_children(values: Tensor, pairs: Tensor) -> Tensor:
    """``derive`` in ``b`` alone: the most frequent questions go there directly."""
    n, q, j, i, p = values.shape
    total = values.new_empty((n, q, j, p))
    find_kernel("derive", values.dtype)(
        n * q * j, j, pairs.shape[2], i, p, 1, values.data_ptr(), pairs.data_ptr(), None, None, None, None, None,
        total.data_ptr(), None, None,
    )  # fmt: skip
    return total


def sum_over_pose(values: Tensor, linear: Tensor) -> Tensor:
    """``derive`` in ``a`` alone, from ``b``."""
    n, q, j, i, p = values.shape
    pairs = values.new_empty((n, q, j, i))
    find_kernel("derive", values.dtype)(
        n * q * j, j, j, i, p, 1, values.data_ptr(), None, None, linear.data_ptr(), None, None, pairs.data_ptr(), None,
        None, None,
    )  # fmt: skip
    return pairs


def attend(values: Tensor, parent: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The sums over children by the softmax over parents of ``scale <v, parent>``, and the softmax ``(n, q, j, i)``."""
    n, q, j, i, p = values.shape
    total, coupling = torch.empty_like(parent), values.new_empty((n, q, j, i))
    find_kernel("attend", values.dtype)(
        n * q, j, i, p, scale, values.data_ptr(), parent.data_ptr(), None, None, coupling.data_ptr(), total.data_ptr(),
        None, None,
    )  # fmt: skip
    return total, coupling


def carry_attention_back(
    values: Tensor, parent: Tensor, scale: float, grad: Tensor, to_coupling: Tensor | None, *, of_values: bool
) -> tuple[Tensor | None, Tensor]:
    """The gradients in votes and parents of ``attend``."""
    n, q, j, i, p = values.shape
    to_parent, rooms = torch.empty_like(parent), values.new_empty((n * q + 1, j, i))
    to_values = torch.empty_like(values) if of_values else None
    find_kernel("attend", values.dtype)(
        n * q, j, i, p, scale, values.data_ptr(), parent.data_ptr(), grad.data_ptr(),
        None if to_coupling is None else to_coupling.data_ptr(), rooms.data_ptr(), to_parent.data_ptr(),
        None if to_values is None else to_values.data_ptr(), rooms[-1].data_ptr(),
    )  # fmt: skip
    return to_values, to_parent


def sum_alike(pose: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """The sum ``(n, q, j, c h)`` of all votes of ``make_votes`` times weights of children ``(n, q, i, 1)``, without
    votes."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    total, room = pose.new_empty((n, q, j, c * h)), torch.empty_like(pose)
    find_kernel("alike", pose.dtype)(
        n * q, i // t, t, j, c, d, h, pose.data_ptr(), scale.data_ptr(), weight.data_ptr(), None, total.data_ptr(),
        None, None, None, room.data_ptr(),
    )  # fmt: skip
    return total


def carry_sum_back(
    pose: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, *, of_scale: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients in the poses, vote weights and weights of children of ``sum_alike``, from that in the sum."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    to_pose, to_weight, room = torch.empty_like(pose), torch.empty_like(weight), torch.empty_like(pose)
    to_scale = torch.empty_like(scale) if of_scale else None
    find_kernel("alike", pose.dtype)(
        n * q, i // t, t, j, c, d, h, pose.data_ptr(), scale.data_ptr(), weight.data_ptr(), grad.data_ptr(), None,
        to_pose.data_ptr(), None if to_scale is None else to_scale.data_ptr(), to_weight.data_ptr(), room.data_ptr(),
    )  # fmt: skip
    return to_pose, to_weight, to_scale


def invert_lengths(values: Tensor, shortest: float, grad: Tensor | None = None) -> Tensor:
    """``1 / |v|`` of the votes, at most that of a squared length of ``shortest``; with a gradient its way back."""
    size = values.shape[-1]
    found = values.new_empty(values.shape[:-1]) if grad is None else torch.empty_like(values)
    find_kernel("lengths", values.dtype)(
        values.numel() // size, size, shortest, values.data_ptr(), None if grad is None else grad.data_ptr(),
        found.data_ptr(),
    )  # fmt: skip
    return found


def make_unit(total: Tensor, shortest: float, grad: Tensor | None = None) -> Tensor:
    """``s / |s|`` of contiguous vectors, or through ``shortest`` where that is longer; with a gradient its way back."""
    found, size = torch.empty_like(total), total.shape[-1]
    find_kernel("unit", total.dtype)(
        total.numel() // size, size, shortest, total.data_ptr(), None if grad is None else grad.data_ptr(),
        found.data_ptr(),
    )  # fmt: skip
    return found


def squash(total: Tensor, kernel: str = "squash") -> tuple[Tensor, Tensor]:
    """Contiguous vectors squashed by one of the kernels ``squash`` and ``exponential``, and the logits of the
    lengths."""
    pose, score = torch.empty_like(total), total.new_empty(total.shape[:-1])
    _run_squash(kernel, total, None, None, pose, score)
    return pose, score


def squash_alone(total: Tensor) -> Tensor:
    """The vectors of ``squash`` without the logits."""
    pose = torch.empty_like(total)
    _run_squash("squash", total, None, None, pose, None)
    return pose


def score_lengths(total: Tensor) -> Tensor:
    """The logits of ``squash`` without the vectors."""
    score = total.new_empty(total.shape[:-1])
    _run_squash("squash", total, None, None, None, score)
    return score


def carry_squash_back(total: Tensor, to_pose: Tensor | None, to_score: Tensor | None, kernel: str = "squash") -> Tensor:
    """The gradient in the vectors of ``squash``, from those in poses, in scores or in both, of any memory order."""
    found = torch.empty_like(total)
    to_pose = None if to_pose is None else to_pose.contiguous()
    to_score = None if to_score is None else to_score.contiguous()
    _run_squash(kernel, total, to_pose, to_score, found, None)
    return found


def _run_squash(
    kernel: str, total: Tensor, to_pose: Tensor | None, to_score: Tensor | None, pose: Tensor | None,
    score: Tensor | None,
) -> None:  # fmt: skip
    size = total.shape[-1]
    find_kernel(kernel, total.dtype)(
        total.numel() // max(size, 1), size, _LEAST[kernel, total.dtype], total.data_ptr(),
        None if to_pose is None else to_pose.data_ptr(), None if to_score is None else to_score.data_ptr(),
        None if pose is None else pose.data_ptr(), None if score is None else score.data_ptr(),
    )  # fmt: skip


def score_shares(log_mass: Tensor, grad: Tensor | None = None) -> Tensor:
    """``log m_j - log(sum of the other masses)`` of contiguous rows of logarithms, or with a gradient its way back."""
    found, parents = torch.empty_like(log_mass), log_mass.shape[-1]
    find_kernel("rivals", log_mass.dtype)(
        log_mass.numel() // parents, parents, _LEAST["exponential", log_mass.dtype], log_mass.data_ptr(),
        None if grad is None else grad.data_ptr(), found.data_ptr(),
    )  # fmt: skip
    return found


# The least square of a length, and the least logit.
_LEAST = {
    (kernel, dtype): torch.finfo(dtype).tiny if kernel == "squash" else log(torch.finfo(dtype).tiny)
    for kernel in ("squash", "exponential")
    for dtype in (torch.float32, torch.float64)
}
