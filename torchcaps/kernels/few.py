"""Few votes and single vectors, by the kernels of ``linear.c``, ``derive.c``, ``attend.c``, ``vectors.c``, ``units.c``.

Plain calls, since each of them takes about as long as it takes Python to make it.

Votes are ``(n, q, j, i, p)``, weights of pairs ``(n, q, j or 1, i)``, what belongs to parents is ``(n, q, j, p)``. All
tensors are contiguous.
"""

from functools import lru_cache
from math import log
from struct import Struct

import torch
from torch import Tensor

from torchcaps.kernels.library import find_kernel

# The structures of the kernels, as bytes: that takes a third of the time of ctypes. An address of 0 is none.
_pack_linear = Struct("9q d 9q").pack
_pack_units = Struct("9q d 9q q d 3q").pack
_pack_derivatives = Struct("6q 10q").pack
_pack_attention = Struct("4q d 8q").pack
_pack_vectors = Struct("2q d 5q").pack

SHORT_LINE = 64  # rows of poses up to this length are pooled without room for them; kernels/linear.c has the same
UNITS_AT_ONCE = 1 << 16  # numbers of votes that `sum_units` makes at a time: 256 kB, which a second-level cache holds


def make_votes(pose: Tensor, weight: Tensor) -> Tensor:
    """Few votes ``(n, q, j, i, c h)`` of poses ``(n, q, i, c, d)`` and weights ``(t, j, d, h)``, at once."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    made = pose.new_empty((n, q, j, i, c * h))
    find_kernel("make", pose.dtype)(
        _pack_linear(
            n * q, i // t, t, j, c, d, h, 0, 1, 1.0, pose.data_ptr(), weight.data_ptr(), 0, made.data_ptr(), 0, 0, 0,
            0, 0,
        )
    )  # fmt: skip
    return made


def carry_votes_back(pose: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients in the poses and weights of ``make_votes``, from that in the votes."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    to_pose, to_weight, room = torch.empty_like(pose), torch.empty_like(weight), pose.new_empty((2, *pose.shape))
    find_kernel("carry_few", pose.dtype)(
        _pack_linear(
            n * q, i // t, t, j, c, d, h, 0, 1, 1.0, pose.data_ptr(), weight.data_ptr(), 0, 0, grad.data_ptr(),
            to_pose.data_ptr(), to_weight.data_ptr(), 0, room.data_ptr(),
        )
    )  # fmt: skip
    return to_pose, to_weight


def sum_up(pose: Tensor, weight: Tensor, scale: Tensor | None, threads: int = 1) -> Tensor:
    """The sums ``(n, q, j, c h)`` over the children of the votes of ``make_votes`` times a scale of each pair, without
    votes. Without scales, each child is shared out evenly."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    scales = 1 if scale is None else scale.shape[2]
    total = pose.new_empty((n, q, j, c * h))
    room = pose.new_empty((n, q, c, d)) if d > SHORT_LINE and are_pooled(i, t, scales) else None
    find_kernel("sum_up", pose.dtype)(
        _pack_linear(
            n * q, i // t, t, j, c, d, h, scales, threads, 1.0 / j, pose.data_ptr(), weight.data_ptr(),
            _address(scale), total.data_ptr(), 0, 0, 0, 0, _address(room),
        )
    )  # fmt: skip
    return total


def are_pooled(children: int, types: int, scales: int) -> bool:
    """Whether the kernels add children up before they vote: all are of one type, with one scale for all parents."""
    return types == 1 and scales == 1 and children > 1


def carry_sum_back(
    pose: Tensor, weight: Tensor, scale: Tensor | None, grad: Tensor, *, of_scale: bool, threads: int = 1
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients in the poses, weights and scales of ``sum_up``, from that in the sums."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    scales = 1 if scale is None else scale.shape[2]
    to_pose, to_weight = torch.empty_like(pose), torch.empty_like(weight)
    room = pose.new_empty((2, n, q, 1 if are_pooled(i, t, scales) else i, c, d))
    to_scale = torch.empty_like(scale) if of_scale and scale is not None else None
    find_kernel("carry_few", pose.dtype)(
        _pack_linear(
            n * q, i // t, t, j, c, d, h, scales, threads, 1.0 / j, pose.data_ptr(), weight.data_ptr(),
            _address(scale), 0, grad.data_ptr(), to_pose.data_ptr(), to_weight.data_ptr(), _address(to_scale),
            room.data_ptr(),
        )
    )  # fmt: skip
    return to_pose, to_weight, to_scale


def sum_units(pose: Tensor, weight: Tensor, shortest: float) -> tuple[Tensor, Tensor]:
    """The sums ``(n, q, j, c h)`` over the children of the votes of ``make_votes`` times ``invert_lengths``, and those
    of their squares. A near cache holds the votes, which are made for some rows at a time."""
    n, q, i, c, d = pose.shape
    t, j, _, h = weight.shape
    total, squares = pose.new_empty((n, q, j, c * h)), pose.new_empty((n, q, j, c * h))
    at_once = min(n * q, max(1, UNITS_AT_ONCE // (j * i * c * h)))
    room, inverse = pose.new_empty(at_once * j * i * c * h), pose.new_empty(at_once * j * i)
    find_kernel("units", pose.dtype)(
        _pack_units(
            n * q, i // t, t, j, c, d, h, 0, 1, 1.0, pose.data_ptr(), weight.data_ptr(), 0, room.data_ptr(), 0, 0, 0,
            0, 0, at_once, shortest, inverse.data_ptr(), total.data_ptr(), squares.data_ptr(),
        )
    )  # fmt: skip
    return total, squares


def derive(
    values: Tensor, pairs: Tensor | None = None, center: Tensor | None = None, linear: Tensor | None = None,
    square: Tensor | None = None, *, to_values: Tensor | None = None, to_pairs: Tensor | None = None,
    to_linear: Tensor | None = None, to_square: Tensor | None = None, power: int = 1,
) -> None:  # fmt: skip
    """Write the derivatives of ``sum a b (v - center) + a**power s (v - center)**2`` to the tensors that are given for
    them: in the votes, in the weights ``a`` of pairs, in ``b`` (linear) and in ``s`` (square)."""
    n, q, j, i, p = values.shape
    room = None if center is None else values.new_empty(4 * p)
    of_pairs = pairs if to_pairs is None else to_pairs
    find_kernel("derive", values.dtype)(
        _pack_derivatives(
            n * q * j, j, of_pairs.shape[2] if of_pairs is not None else j, i, p, power,
            values.data_ptr(),
            0 if pairs is None else pairs.data_ptr(),
            0 if center is None else center.data_ptr(),
            0 if linear is None else linear.data_ptr(),
            0 if square is None else square.data_ptr(),
            0 if to_values is None else to_values.data_ptr(),
            0 if to_pairs is None else to_pairs.data_ptr(),
            0 if to_linear is None else to_linear.data_ptr(),
            0 if to_square is None else to_square.data_ptr(),
            0 if room is None else room.data_ptr(),
        )
    )  # fmt: skip


def sum_over_children(values: Tensor, pairs: Tensor) -> Tensor:
    """``derive`` in ``b`` alone: the most frequent questions go there directly."""
    n, q, j, i, p = values.shape
    total = values.new_empty((n, q, j, p))
    find_kernel("derive", values.dtype)(
        _pack_derivatives(
            n * q * j, j, pairs.shape[2], i, p, 1, values.data_ptr(), pairs.data_ptr(), 0, 0, 0, 0, 0,
            total.data_ptr(), 0, 0,
        )
    )  # fmt: skip
    return total


def sum_over_pose(values: Tensor, linear: Tensor) -> Tensor:
    """``derive`` in ``a`` alone, from ``b``."""
    n, q, j, i, p = values.shape
    pairs = values.new_empty((n, q, j, i))
    find_kernel("derive", values.dtype)(
        _pack_derivatives(
            n * q * j, j, j, i, p, 1, values.data_ptr(), 0, 0, linear.data_ptr(), 0, 0, pairs.data_ptr(), 0, 0, 0
        )
    )
    return pairs


def attend(values: Tensor, parent: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The sums over children by the softmax over parents of ``scale <v, parent>``, and the softmax ``(n, q, j, i)``."""
    n, q, j, i, p = values.shape
    total, coupling = torch.empty_like(parent), values.new_empty((n, q, j, i))
    find_kernel("attend", values.dtype)(
        _pack_attention(
            n * q, j, i, p, scale, values.data_ptr(), parent.data_ptr(), 0, 0, coupling.data_ptr(), total.data_ptr(),
            0, 0,
        )
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
        _pack_attention(
            n * q, j, i, p, scale, values.data_ptr(), parent.data_ptr(), grad.data_ptr(), _address(to_coupling),
            rooms.data_ptr(), to_parent.data_ptr(), _address(to_values), rooms[-1].data_ptr(),
        )
    )  # fmt: skip
    return to_values, to_parent


def invert_lengths(values: Tensor, shortest: float, grad: Tensor | None = None) -> Tensor:
    """``1 / |v|`` of the votes, at most that of a squared length of ``shortest``; with a gradient its way back."""
    found = values.new_empty(values.shape[:-1]) if grad is None else torch.empty_like(values)
    _run_on_vectors("lengths", values, shortest, grad, None, found, None)
    return found


def make_unit(total: Tensor, shortest: float, grad: Tensor | None = None) -> Tensor:
    """``s / |s|`` of vectors, or through ``shortest`` where that is longer; with a gradient its way back."""
    found = torch.empty_like(total)
    _run_on_vectors("unit", total, shortest, grad, None, found, None)
    return found


def squash(total: Tensor, kernel: str = "squash") -> tuple[Tensor, Tensor]:
    """Vectors squashed by one of the kernels ``squash`` and ``exponential``, and the logits of the lengths."""
    pose, score = torch.empty_like(total), total.new_empty(total.shape[:-1])
    size, least = total.shape[-1], _find_least(kernel, total.dtype)
    find_kernel(kernel, total.dtype)(  # as in _run_on_vectors: small layers feel each call
        _pack_vectors(
            total.numel() // max(size, 1), size, least, total.data_ptr(), 0, 0, pose.data_ptr(), score.data_ptr()
        )
    )
    return pose, score


def squash_alone(total: Tensor) -> Tensor:
    """The vectors of ``squash`` without the logits."""
    pose = torch.empty_like(total)
    _run_on_vectors("squash", total, _find_least("squash", total.dtype), None, None, pose, None)
    return pose


def score_lengths(total: Tensor) -> Tensor:
    """The logits of ``squash`` without the vectors."""
    score = total.new_empty(total.shape[:-1])
    _run_on_vectors("squash", total, _find_least("squash", total.dtype), None, None, None, score)
    return score


def carry_squash_back(total: Tensor, to_pose: Tensor | None, to_score: Tensor | None, kernel: str = "squash") -> Tensor:
    """The gradient in the vectors of ``squash``, from those in poses, in scores or in both, of any memory order."""
    found = torch.empty_like(total)
    to_pose = None if to_pose is None else to_pose.contiguous()
    to_score = None if to_score is None else to_score.contiguous()
    _run_on_vectors(kernel, total, _find_least(kernel, total.dtype), to_pose, to_score, found, None)
    return found


def score_shares(log_mass: Tensor, grad: Tensor | None = None) -> Tensor:
    """``log m_j - log(sum of the other masses)`` of rows of logarithms, or with a gradient its way back."""
    found = torch.empty_like(log_mass)
    _run_on_vectors("rivals", log_mass, _find_least("rivals", log_mass.dtype), grad, None, found, None)
    return found


def _run_on_vectors(
    kernel: str, vectors: Tensor, least: float, grad: Tensor | None, to_score: Tensor | None, to: Tensor | None,
    score: Tensor | None,
) -> None:  # fmt: skip
    size = vectors.shape[-1]
    find_kernel(kernel, vectors.dtype)(
        _pack_vectors(
            vectors.numel() // max(size, 1), size, least, vectors.data_ptr(), _address(grad), _address(to_score),
            _address(to), _address(score),
        )
    )  # fmt: skip


@lru_cache(maxsize=16)
def _find_least(kernel: str, dtype: torch.dtype) -> float:
    """The least square of a length for the kernel ``squash``, else the least logit."""
    tiny = torch.finfo(dtype).tiny
    return tiny if kernel == "squash" else log(tiny)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
