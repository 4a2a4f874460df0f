"""Batch norm of capsules."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes, pose_shape
from torchcaps.parameters import Device, reset_children
from torchcaps.votes.norm import normalize

Per = Literal["component", "type"]
"""What has a mean and a variance of its own: each pose component of each type of capsule, or each type."""


class PoseNorm(nn.Module):
    """Batch norm of poses, over examples and positions; scores stay as they are. It is the ``pose_norm`` of layers.

    Args:
        caps: capsules of each position, each of its own type.
        pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        per: what has statistics, a scale and a shift of its own: each ``"component"`` of each type's pose (Hahn 2019),
            or each ``"type"``, over all components (Ribeiro 2020).
        affine: whether a scale and a shift are learned.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(*b, caps, pose)``, scores ``(*b, caps)`` or none; the result has the same shape.

    Returns:
        The ``Capsules`` with their poses normalized.

    Example:
        >>> PoseNorm(8, (4, 4))(Capsules(torch.randn(2, 6, 6, 8, 16))).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        caps: int,
        pose: Pose,
        *,
        per: Per = "component",
        affine: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(caps=caps)
        rows, columns = pose_shape(pose)
        if per not in get_args(Per):
            raise ValueError(f"no norm per {per!r}; there are {' and '.join(map(repr, get_args(Per)))}")
        self.caps, self.pose, self.pose_size = caps, pose, rows * columns
        self.per: Per = per
        features = caps if per == "type" else caps * self.pose_size
        self.norm = nn.BatchNorm1d(features, affine=affine, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Begin anew: scale one, shift zero, no statistics."""
        reset_children(self)

    def extra_repr(self) -> str:
        return f"caps={self.caps}, pose={self.pose}, per={self.per!r}"

    def forward(self, capsules: Capsules) -> Capsules:
        """Normalize poses.

        Args:
            capsules: capsules of the sizes that the norm was made for.

        Returns:
            The same capsules with other poses.
        """
        check_capsules(capsules, "PoseNorm")
        pose = capsules.pose
        if tuple(pose.shape[-2:]) != (self.caps, self.pose_size):
            raise ValueError(f"poses (*b, {self.caps}, {self.pose_size}) are normalized; got shape {tuple(pose.shape)}")
        by_type = pose if self.per == "type" else rearrange(pose, "... n d -> ... (n d) 1")
        normed = normalize_types(self.norm, by_type).reshape(pose.shape)
        return Capsules(normed, capsules.score, capsules.variance)


def normalize_types(norm: nn.BatchNorm1d, numbers: Float[Tensor, "*b n x"]) -> Float[Tensor, "*b n x"]:
    """Batch norm with statistics of each ``n`` (of all together, where the norm has one feature), over everything else.

    In training a batch that has one number of each has no variance: it is normalized by the running statistics, which
    it leaves alone. ``nn.BatchNorm1d`` would refuse it.

    >>> normalize_types(nn.BatchNorm1d(3, affine=False), torch.randn(1, 3, 1)).shape
    torch.Size([1, 3, 1])
    """
    rows = numbers.reshape(-1, norm.num_features, numbers.shape[-1])
    if not norm.training or rows.shape[0] * rows.shape[2] > 1:
        return normalize(norm, rows).reshape(numbers.shape)
    state = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, variance, weight, bias = (None if tensor is None else tensor.to(rows.dtype) for tensor in state)
    return F.batch_norm(rows, mean, variance, weight, bias, eps=norm.eps).reshape(numbers.shape)
