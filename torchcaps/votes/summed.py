"""Sums of votes by a weight for each pair without the votes, for routes that ask for one sum and nothing else.

Where all parents have the same weights of children, the sum is one matrix product of the whole batch.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.few import are_pooled, carry_sum_back, sum_units, sum_up
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import GRAIN, turn_back, turn_poses
from torchcaps.kernels.modes import in_full_precision
from torchcaps.kernels.waiting import give_way
from torchcaps.votes.built import BuiltVotes, Pairs, Parents, Weights
from torchcaps.votes.costs import SUM_COSTS
from torchcaps.votes.shares import NativeCompetition

MOST_KERNEL_POSES = 1 << 18
"""Numbers of poses, measured by ``python -m benchmarks.fit_limits``: more leave the second cache, and the kernel's way
back goes through them for every block of vote weights."""

Poses = Float[Tensor, "n q i c d"]
Matrices = Float[Tensor, "t j d h"]


class SummedVotes(BuiltVotes):
    """Votes by a weight for each pair, without biases, of which a route wants one sum."""

    _even: Weights | None = None  # what compete_evenly returned, if all children have as many parents

    def mix(self, weight: Weights) -> Parents:
        pose, matrix = self.tensors
        return sum_votes(pose, matrix, None if weight is self._even else weight)

    def mix_evenly(self) -> Parents:
        pose, matrix = self.tensors
        return sum_votes(pose, matrix, None) if self._are_alike() else super().mix_evenly()

    def mix_units(self, pose: int, shortest: float) -> tuple[Parents, Parents]:
        poses, matrix = self.tensors
        training = torch.is_grad_enabled() and (poses.requires_grad or matrix.requires_grad)
        if training or self.competition.there(poses.shape[2]) is not None:
            return super().mix_units(pose, shortest)
        return sum_units(poses.contiguous(), matrix.contiguous(), shortest)

    def compete_evenly(self) -> Float[Tensor, "n q i 1"]:
        even = super().compete_evenly()
        self._even = even if self._are_alike() else None
        return even

    def _are_alike(self) -> bool:
        """Whether all children have as many parents."""
        return self.competition.tables is None and self.competition.there(self.tensors[0].shape[2]) is None

    def split_log_mass(
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        return NativeCompetition(self.competition, 1).split(logits, log_present, in_logs=True)


def sum_votes(pose: Poses, matrix: Matrices, weight: Weights | None) -> Parents:
    """``sum_i w_ij v_ij``, by a kernel or as a product, whichever takes less time; without weights, by even ones."""
    alike = weight is None or weight.shape[-1] == 1
    if not alike or kernel_pays(pose.shape, matrix.shape, torch.get_num_threads()):
        return apply_kernel(_KERNEL, pose, matrix, weight)
    if weight is None and _lies_flat(pose, matrix):
        return _multiply_flat(pose, matrix)
    return apply_kernel(_PRODUCT, pose, matrix, _fill_in(pose, matrix, weight))


def sum_plainly(pose: Poses, matrix: Matrices, weight: Weights | None) -> Parents:
    """The same in PyTorch's operations."""
    (n, q, i, c, d), (t, j, _, h) = pose.shape, matrix.shape
    weight = _fill_in(pose, matrix, weight)
    if weight.shape[-1] == 1:
        mixed = _join_groups(pose, weight, t) @ _turn(matrix)
        return mixed.reshape(n, q, c, j, h).transpose(2, 3).reshape(n, q, j, c * h)
    # One product for each parent. No einsum: those who take many gradients at once do not know it.
    weighted = pose.unsqueeze(2) * weight.mT.reshape(n, q, j, i, 1, 1)
    grouped = weighted.reshape(n, q, j, i // t, t, c, d).sum(3).permute(2, 0, 1, 4, 3, 5)  # j n q c t d
    mixed = torch.bmm(grouped.reshape(j, n * q * c, t * d), matrix.transpose(0, 1).reshape(j, t * d, h))
    return mixed.reshape(j, n, q, c, h).permute(1, 2, 0, 3, 4).reshape(n, q, j, c * h)


@lru_cache(maxsize=256)  # small layers feel the comparison
def kernel_pays(pose: tuple[int, ...], matrix: tuple[int, ...], threads: int) -> bool:
    """Whether poses and vote weights of these shapes are summed up sooner by the kernel, which reads the weights as
    they lie, than by a matrix product of a copy of them, where there are so many threads and all parents have the same
    weights of children."""
    if matrix[0] == 1:  # the kernel adds children up before they vote
        pose = (*pose[:2], 1, *pose[3:])
    if prod(pose) > MOST_KERNEL_POSES:
        return False
    kernel = estimate_seconds(pose, matrix, count_threads(pose, matrix, threads))
    return kernel < estimate_seconds(pose, matrix, threads, way="product")


@lru_cache(maxsize=256)
def count_threads(pose: tuple[int, ...], matrix: tuple[int, ...], threads: int) -> int:
    """On how many of so many threads the kernel takes least time: on one or on all."""
    return min((1, threads), key=lambda used: estimate_seconds(pose, matrix, used))


def estimate_seconds(pose: tuple[int, ...], matrix: tuple[int, ...], threads: int, way: str | None = None) -> float:
    """What the sum of votes costs by the model: so much for a call, for each vote weight, for each product of a weight
    with a pose, which threads share, and for starting threads. Without a way, by the kernel."""
    (n, q, i, c, _), (t, j, d, h) = pose, matrix
    call, weight, product, start = SUM_COSTS[way or f"kernel {fill_vectors(d, h)}"]
    terms = i if way is None else t  # a product takes the poses of groups that share weights together
    products = n * q * terms * c * j * d * h
    return call + weight * t * j * d * h + product * products / threads + (start if threads > 1 else 0.0)


def fill_vectors(columns: int, out_columns: int) -> int:
    """How many numbers of a vote the kernel adds up in one vector, where poses have so many columns and votes so
    many."""
    if columns % 8 == 0 and out_columns % 16 == 0:
        return 16
    return 4 if columns % 4 == 0 and out_columns % 4 == 0 else 1


def _run_kernel(pose: Poses, matrix: Matrices, weight: Weights | None) -> Parents:
    threads = _share_out(pose, matrix, weight)
    if threads > 1:
        give_way()
    scale = None if weight is None else weight.mT.contiguous()
    return sum_up(pose.contiguous(), matrix.contiguous(), scale, threads)


def _run_kernel_back(tensors: Sequence[Any], grads: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    pose, matrix, weight = tensors
    to_pose, to_matrix, to_weight = carry_sum_back(
        pose.contiguous(),
        matrix.contiguous(),
        None if weight is None else weight.mT.contiguous(),
        grads[0].contiguous(),
        of_scale=wanted[2],
        threads=_share_out(pose, matrix, weight),
    )
    return to_pose, to_matrix, None if to_weight is None else to_weight.mT


def _share_out(pose: Poses, matrix: Matrices, weight: Weights | None) -> int:
    """The threads for a kernel. Where children are added up first, that is most of the work."""
    threads = torch.get_num_threads()
    if threads > 1 and are_pooled(pose.shape[2], matrix.shape[0], 1 if weight is None else weight.shape[-1]):
        return threads if pose.numel() > GRAIN else 1
    return count_threads(pose.shape, matrix.shape, threads)


def _multiply(pose: Poses, matrix: Matrices, weight: Weights) -> Parents:
    (n, q, _, c, _), (t, j, _, h) = pose.shape, matrix.shape
    with in_full_precision(pose.device):
        mixed = turn_poses(pose.contiguous(), weight.contiguous(), t) @ _turn(matrix)
    return mixed.view(n, q, c, j, h).transpose(2, 3).reshape(n, q, j, c * h)


def _multiply_back(tensors: Sequence[Any], grads: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    pose, matrix, weight = (tensor.contiguous() for tensor in tensors)
    (n, q, _, c, _), (t, j, d, h) = pose.shape, matrix.shape
    arriving = grads[0].reshape(n, q, j, c, h).transpose(2, 3).reshape(n * q * c, j * h)
    to_pose = to_matrix = to_weight = None
    with in_full_precision(pose.device):
        if wanted[1]:
            to_matrix = (turn_poses(pose, weight, t).T @ arriving).view(t, d, j, h).transpose(1, 2)
        if wanted[0] or wanted[2]:
            toward = arriving @ _turn(matrix).T
            to_pose = turn_back(toward, weight, pose.shape, t) if wanted[0] else None
            if wanted[2]:
                to_weight = (turn_back(toward, None, pose.shape, t) * pose).flatten(3).sum(-1, keepdim=True)
    return to_pose, to_matrix, to_weight


def _fill_in(pose: Poses, matrix: Matrices, weight: Weights | None) -> Weights:
    return pose.new_full((*pose.shape[:3], 1), 1.0 / matrix.shape[1]) if weight is None else weight


def _lies_flat(pose: Poses, matrix: Matrices) -> bool:
    """Whether poses are the rows of a matrix as they lie: vectors of children that all have weights of their own."""
    return pose.shape[3] == 1 and pose.shape[2] == matrix.shape[0]


def _multiply_flat(pose: Poses, matrix: Matrices) -> Parents:
    """Even sums as one product of poses that are neither weighted nor copied, left to autograd."""
    (n, q, i, _, d), (_, j, _, h) = pose.shape, matrix.shape
    mixed = pose.reshape(n * q, i * d) @ _turn(matrix)
    return (mixed * (1.0 / j)).view(n, q, j, h)


def _join_groups(pose: Poses, weight: Float[Tensor, "n q i 1"], types: int) -> Float[Tensor, "n q c td"]:
    """The weighted poses, added up over the groups that share vote weights."""
    n, q, i, c, d = pose.shape
    weighted = (pose * weight.reshape(n, q, i, 1, 1)).reshape(n, q, i // types, types, c, d)
    grouped = weighted.squeeze(2) if i == types else weighted.sum(2)
    return grouped.transpose(2, 3).reshape(n, q, c, types * d)


def _turn(matrix: Matrices) -> Float[Tensor, "td jh"]:
    t, j, d, h = matrix.shape
    return matrix.transpose(1, 2).reshape(t * d, j * h)


_KERNEL = Kernel(_run_kernel, _run_kernel_back, sum_plainly)
_PRODUCT = Kernel(_multiply, _multiply_back, sum_plainly)
