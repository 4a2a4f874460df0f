"""Convolutions on a CPU, with a sixth or a quarter of the multiplications: ``Conv2d`` in place of PyTorch's."""

from torchcaps.convolution.layer import Conv2d
from torchcaps.convolution.pointwise import PoseConv2d

__all__ = ["Conv2d", "PoseConv2d"]
