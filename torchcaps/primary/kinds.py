"""The primary capsules of the first five papers."""

import torch
import torch.nn.functional as F
from torch import nn

from torchcaps.capsules import Capsules, Pair, Pose, as_pair
from torchcaps.convolution import Conv2d, PoseConv2d
from torchcaps.parameters import Device, Factory
from torchcaps.primary.base import Features, PrimaryCapsules
from torchcaps.squashing import check_squash, squash_to_capsules


class SquashedPrimaryCapsules(PrimaryCapsules):
    """Sabour 2017: a convolution whose output, read as vectors, is squashed.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        coupled: as in the authors' code, where these capsules pass one round of routing with equal couplings: the
            convolution is divided by the number of capsules before its bias is added.
        squash: how vectors are squashed, a key of ``torchcaps.squashing.SQUASHES``.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> SquashedPrimaryCapsules(64, out_caps=8, out_pose=16)(torch.zeros(2, 64, 20, 20)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose,
        *,
        kernel_size: Pair = 9,
        stride: Pair = 2,
        coupled: bool = False,
        squash: str = "rational",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        self.coupled, self.squash = coupled, check_squash(squash)
        self.convolution = Conv2d(in_channels, out_caps * self.pose_size, *window, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, squash={self.squash!r}" + (", coupled=True" if self.coupled else "")

    def forward(self, features: Features) -> Capsules:
        if self.coupled:
            plain = F.conv2d(features, self.convolution.weight, stride=self.convolution.stride)
            assert self.convolution.bias is not None
            total = plain / self.out_caps + self.convolution.bias[:, None, None]
        else:
            total = self.convolution(features)
        return squash_to_capsules(self._as_poses(total), self.squash)


class MatrixPrimaryCapsules(PrimaryCapsules):
    """Hinton 2018: at each position a linear map of the features to the pose, and one to the activation.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row, column, out_caps, out_pose)``, scores ``(b, row, column, out_caps)``.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> MatrixPrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        self.pose = PoseConv2d(in_channels, out_caps * self.pose_size, 1, device=device, dtype=dtype)
        self.score = nn.Conv2d(in_channels, out_caps, 1, device=device, dtype=dtype)

    def forward(self, features: Features) -> Capsules:
        return Capsules(self._as_poses(self.pose(features)), self._as_scores(self.score(features)))


class NormalizedScorePrimaryCapsules(PrimaryCapsules):
    """Heinsen 2019: batch norm and a 1×1 convolution, once for the scores and once for the poses.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row, column, out_caps, out_pose)``, scores ``(b, row, column, out_caps)``.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> NormalizedScorePrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).score.shape
        torch.Size([2, 6, 6, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        factory: Factory = {"device": device, "dtype": dtype}
        self.score = _normed_map(in_channels, out_caps, factory)
        self.pose = _normed_map(in_channels, out_caps * self.pose_size, factory)
        self._draw()

    def _draw(self) -> None:
        for part in (self.score, self.pose):
            convolution = part[1]
            assert isinstance(convolution, nn.Conv2d)
            assert convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)

    def forward(self, features: Features) -> Capsules:
        return Capsules(self._as_poses(self.pose(features)), self._as_scores(self.score(features)))


def _normed_map(in_channels: int, out_channels: int, factory: Factory) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(in_channels, **factory), nn.Conv2d(in_channels, out_channels, 1, **factory))


class LayerNormPrimaryCapsules(PrimaryCapsules):
    """Tsai 2020: a convolution without bias, then layer normalization of each capsule; no activations.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        scored: whether to add the activations that the paper's ablation with activations needs.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)`` or none.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> LayerNormPrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        kernel_size: Pair = 1,
        stride: Pair = 1,
        scored: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        factory: Factory = {"device": device, "dtype": dtype}
        self.convolution = PoseConv2d(in_channels, out_caps * self.pose_size, *window, bias=False, **factory)
        self.norm = nn.LayerNorm(self.pose_size, **factory)
        self.score = nn.Conv2d(in_channels, out_caps, *window, **factory) if scored else None

    def forward(self, features: Features) -> Capsules:
        pose = self.norm(self._as_poses(self.convolution(features)))
        return Capsules(pose, None if self.score is None else self._as_scores(self.score(features)))


class NormalizedPrimaryCapsules(PrimaryCapsules):
    """Zhao 2020: a convolution without bias that halves the grid, batch norm, squash.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair. The features are padded by
            half of it.
        stride: steps from capsule to capsule.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> NormalizedPrimaryCapsules(64, out_caps=4)(torch.zeros(2, 64, 8, 8)).pose.shape
        torch.Size([2, 4, 4, 4, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        kernel_size: Pair = 5,
        stride: Pair = 2,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        tall, wide = as_pair(kernel_size, "kernel_size")
        channels, factory = out_caps * self.pose_size, Factory(device=device, dtype=dtype)
        self.convolution = Conv2d(
            in_channels,
            channels,
            (tall, wide),
            as_pair(stride, "stride"),
            (tall // 2, wide // 2),
            bias=False,
            **factory,
        )
        self.norm = nn.BatchNorm2d(channels, **factory)

    def forward(self, features: Features) -> Capsules:
        total = self._as_poses(self.norm(self.convolution(features)))
        return squash_to_capsules(total)
