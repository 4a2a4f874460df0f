"""A linear map of each child's pose, with weights of its own."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import must_be_traceable
from torchcaps.kernels.modes import in_full_precision, without_autocast


def map_children(
    pose: Float[Tensor, "*b i d"], weight: Float[Tensor, "t j d"], bias: Float[Tensor, "t j"] | None = None
) -> Float[Tensor, "*b i j"]:
    """``W_i x_i + b_i``, in full precision whatever autocast is on.

    Args:
        pose: poses x of the children, in groups of ``t`` types that share weights.
        weight: a matrix for each type.
        bias: added to the results of each type.

    Shape:
        - pose: ``(*b, i, d)``; weight: ``(t, j, d)``; bias: ``(t, j)``; the result is ``(*b, i, j)``.

    Returns:
        The results, in the order of the children.

    Example:
        >>> map_children(torch.randn(2, 6, 4), torch.randn(6, 3, 4)).shape
        torch.Size([2, 6, 3])
    """
    (*batch, i, d), (t, j, _) = pose.shape, weight.shape
    plain = len(batch) == 1 and t in (1, i)  # as in dense layers: small ones feel each call
    grouped = pose if plain else pose.reshape(prod(batch) * (i // t), t, d)
    if must_be_traceable():
        with without_autocast(pose.device):
            mapped = _multiply(grouped, weight)
    else:
        mapped = apply_kernel(_MAP, grouped, weight)
    mapped = mapped if bias is None else mapped + bias
    return mapped if plain else mapped.reshape(*batch, i, j)


def _multiply(pose: Float[Tensor, "n t d"], weight: Float[Tensor, "#t j d"]) -> Float[Tensor, "n t j"]:
    if weight.shape[0] == 1:  # one matrix for all
        (n, t, _), j = pose.shape, weight.shape[1]
        return F.linear(pose.flatten(0, 1), weight.squeeze(0)).view(n, t, j)
    return torch.bmm(pose.transpose(0, 1), weight.mT).transpose(0, 1)


def _multiply_precisely(pose: Tensor, weight: Tensor) -> Tensor:
    with in_full_precision(pose.device):
        return _multiply(pose, weight)


def _multiply_back(tensors: Sequence[Any], grads: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    pose, weight = tensors
    with in_full_precision(pose.device):
        if weight.shape[0] == 1:
            arriving = grads[0].flatten(0, 1)  # (n t) j
            to_pose = (arriving @ weight.squeeze(0)).view(pose.shape) if wanted[0] else None
            return to_pose, (arriving.mT @ pose.flatten(0, 1)).unsqueeze(0) if wanted[1] else None
        arriving = grads[0].transpose(0, 1)  # t n j
        to_pose = torch.bmm(arriving, weight).transpose(0, 1) if wanted[0] else None
        return to_pose, torch.bmm(arriving.mT, pose.transpose(0, 1)) if wanted[1] else None


_MAP = Kernel(_multiply_precisely, _multiply_back, _multiply)
