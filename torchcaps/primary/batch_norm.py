"""Primary capsules with batch norm of poses and scores."""

import torch
from torch import nn

from torchcaps.capsules import Capsules, Pair, Pose, as_pair
from torchcaps.convolution import Conv2d
from torchcaps.norms import Per, PoseNorm
from torchcaps.parameters import Device, Factory
from torchcaps.primary.base import Features, PrimaryCapsules


class BatchNormPrimaryCapsules(PrimaryCapsules):
    """Hahn 2019 and Ribeiro 2020: a convolution without bias and batch norm, once for poses and once for scores.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        padding: zeros added on each side of the features.
        per: what of the poses has a mean and a variance of its own: each ``"component"`` of each type (Hahn), or each
            ``"type"`` (Ribeiro).
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> BatchNormPrimaryCapsules(32, out_caps=8, out_pose=16)(torch.zeros(2, 32, 6, 6)).score.shape
        torch.Size([2, 6, 6, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        kernel_size: Pair = 1,
        stride: Pair = 1,
        padding: Pair = 0,
        per: Per = "component",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        window = (
            as_pair(kernel_size, "kernel_size"),
            as_pair(stride, "stride"),
            as_pair(padding, "padding", least=0),
        )
        factory: Factory = {"device": device, "dtype": dtype}
        self.pose = Conv2d(in_channels, out_caps * self.pose_size, *window, bias=False, **factory)
        self.pose_norm = PoseNorm(out_caps, out_pose, per=per, **factory)
        self.score = nn.Conv2d(in_channels, out_caps, *window, bias=False, **factory)
        self.score_norm = nn.BatchNorm2d(out_caps, **factory)

    def forward(self, features: Features) -> Capsules:
        score = self._as_scores(self.score_norm(self.score(features)))
        return self.pose_norm(Capsules(self._as_poses(self.pose(features)), score))
