"""Primary capsules by a convolution of each channel by itself."""

import torch
from einops import rearrange
from torch import nn

from torchcaps.capsules import Capsules, Pair, Pose, as_pair
from torchcaps.parameters import Device
from torchcaps.primary.base import Features, PrimaryCapsules
from torchcaps.squashing import check_squash, squash_to_capsules


class DepthwisePrimaryCapsules(PrimaryCapsules):
    """Efficient-CapsNet 2021: each channel by itself becomes a number of a pose, by a kernel that may be as large as
    the map; neighboring channels are one capsule, which is squashed.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position; all their numbers together are as many as channels, or a multiple.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        squash: how vectors are squashed, a key of ``torchcaps.squashing.SQUASHES``.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> DepthwisePrimaryCapsules(128, out_caps=16, out_pose=8, kernel_size=9)(torch.zeros(2, 128, 9, 9)).pose.shape
        torch.Size([2, 1, 1, 16, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose,
        *,
        kernel_size: Pair = 9,
        stride: Pair = 1,
        squash: str = "exponential",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        numbers = out_caps * self.pose_size
        if numbers % in_channels:
            raise ValueError(
                f"{out_caps} capsules of {self.pose_size} numbers are {numbers}, which is no multiple of the "
                f"{in_channels} channels; give in_channels={numbers}, or other out_caps and out_pose"
            )
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        self.squash = check_squash(squash)
        self.convolution = nn.Conv2d(in_channels, numbers, *window, groups=in_channels, device=device, dtype=dtype)
        self._draw()

    def _draw(self) -> None:
        assert self.convolution.bias is not None
        nn.init.xavier_uniform_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, squash={self.squash!r}"

    def forward(self, features: Features) -> Capsules:
        weight, bias = self.convolution.weight, self.convolution.bias
        whole = tuple(features.shape[-2:]) == self.convolution.kernel_size
        if whole and len(weight) == self.in_channels and bias is not None:
            # One dot product for each channel; a grouped convolution takes many times as long for it.
            numbers = (features * weight.squeeze(1)).sum((-2, -1)) + bias
            total = rearrange(numbers, "b (n d) -> b 1 1 n d", n=self.out_caps)
        else:
            total = self._as_poses(self.convolution(features))
        return squash_to_capsules(total, self.squash)
