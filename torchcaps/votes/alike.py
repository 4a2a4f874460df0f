"""The sum of votes in which all parents have the same weights of children: one matrix product, without votes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.few import carry_sum_back, sum_alike
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import turn_back, turn_poses
from torchcaps.kernels.modes import in_full_precision
from torchcaps.votes.built import Parents
from torchcaps.votes.costs import SUM_COSTS


def sum_votes(
    pose: Float[Tensor, "n q i c d"], matrix: Float[Tensor, "t j d h"], weight: Float[Tensor, "n q i 1"]
) -> Parents:
    """``sum_i w_i v_ij``, by a kernel or as a product, whichever takes less time."""
    pays = kernel_pays(pose.shape, matrix.shape, torch.get_num_threads())
    return apply_kernel(_KERNEL if pays else _PRODUCT, pose, matrix, weight)


def sum_plainly(
    pose: Float[Tensor, "n q i c d"], matrix: Float[Tensor, "t j d h"], weight: Float[Tensor, "n q i 1"]
) -> Parents:
    """The same in PyTorch's operations."""
    (n, q, _, c, _), (_, j, _, h) = pose.shape, matrix.shape
    mixed = _join_groups(pose, weight, len(matrix)) @ _turn(matrix)
    return mixed.reshape(n, q, c, j, h).transpose(2, 3).reshape(n, q, j, c * h)


@lru_cache(maxsize=256)
def kernel_pays(pose: tuple[int, ...], matrix: tuple[int, ...], threads: int) -> bool:
    """Whether poses and vote weights of these shapes are summed up sooner by the kernel, which reads the weights as
    they lie, than by a matrix product of a copy of them, which is taken on so many threads."""
    (n, q, i, c, _), (t, j, d, h) = pose, matrix
    weights, products = t * j * d * h, n * q * i * c * j * d * h
    call, weight, number = SUM_COSTS[f"kernel {fill_vectors(c, h)}"]
    kernel = call + weight * weights + number * products
    call, weight, number = SUM_COSTS["product"]
    return kernel < call + weight * weights + number * products / threads


def fill_vectors(rows: int, columns: int) -> int:
    """How many numbers of a vote with so many rows and columns the kernel adds up in one vector."""
    return 16 if rows == 1 and columns % 16 == 0 else 4 if columns % 4 == 0 else 1


def _run_kernel(pose: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
    return sum_alike(pose.contiguous(), matrix.contiguous(), weight.contiguous())


def _run_kernel_back(tensors: Sequence[Any], grads: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    pose, matrix, weight = (tensor.contiguous() for tensor in tensors)
    return carry_sum_back(pose, matrix, weight, grads[0].contiguous(), of_scale=wanted[2])


def _multiply(pose: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
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


def _join_groups(pose: Tensor, weight: Tensor, types: int) -> Float[Tensor, "n q c td"]:
    """The weighted poses, added up over the groups that share vote weights."""
    n, q, i, c, d = pose.shape
    weighted = (pose * weight.reshape(n, q, i, 1, 1)).reshape(n, q, i // types, types, c, d)
    grouped = weighted.squeeze(2) if i == types else weighted.sum(2)
    return grouped.transpose(2, 3).reshape(n, q, c, types * d)


def _turn(matrix: Float[Tensor, "t j d h"]) -> Float[Tensor, "td jh"]:
    t, j, d, h = matrix.shape
    return matrix.transpose(1, 2).reshape(t * d, j * h)


_KERNEL = Kernel(_run_kernel, _run_kernel_back, sum_plainly)
_PRODUCT = Kernel(_multiply, _multiply_back, sum_plainly)
