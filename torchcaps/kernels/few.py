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


def squash_exponentially(total: Tensor) -> tuple[Tensor, Tensor]:
    """``s / |s| (1 - exp(-|s|))`` of contiguous vectors, and the logits of its length."""
    pose, score = torch.empty_like(total), total.new_empty(total.shape[:-1])
    _run_exponential(total, None, None, pose, score)
    return pose, score


def carry_squash_back(total: Tensor, to_pose: Tensor | None, to_score: Tensor | None) -> Tensor:
    """The gradient in the vectors of ``squash_exponentially``, from those in poses, in scores or in both."""
    found = torch.empty_like(total)
    _run_exponential(total, to_pose, to_score, found, None)
    return found


def _run_exponential(
    total: Tensor, to_pose: Tensor | None, to_score: Tensor | None, pose: Tensor, score: Tensor | None
) -> None:
    size = total.shape[-1]
    find_kernel("exponential", total.dtype)(
        total.numel() // size, size, _LOWEST[total.dtype], total.data_ptr(),
        None if to_pose is None else to_pose.data_ptr(), None if to_score is None else to_score.data_ptr(),
        pose.data_ptr(), None if score is None else score.data_ptr(),
    )  # fmt: skip


_LOWEST = {dtype: log(torch.finfo(dtype).tiny) for dtype in (torch.float32, torch.float64)}
