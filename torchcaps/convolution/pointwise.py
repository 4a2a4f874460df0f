"""Convolutions of single pixels whose outputs become poses."""

import torch.nn.functional as F
from torch import Tensor

from torchcaps.convolution.layer import Conv2d
from torchcaps.kernels.library import must_be_traceable


class PoseConv2d(Conv2d):
    """``Conv2d`` whose result is read as poses, which have the channels of a pixel side by side in memory.

    With a window of one pixel it is a matrix product on a CPU, and its result lies in memory as poses do
    (``torch.channels_last``), so that nothing is copied.

    Args:
        *arguments: those of ``nn.Conv2d``. Parameters, saved weights and, but for rounding, results are the same too.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> import torch
        >>> PoseConv2d(8, 32, 1)(torch.zeros(2, 8, 6, 5)).is_contiguous(memory_format=torch.channels_last)
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        if must_be_traceable() or not self._is_product(input):
            return super().forward(input)
        poses = F.linear(input.flatten(2).mT, self.weight.flatten(1), self.bias)
        return poses.mT.unflatten(2, input.shape[2:])

    def _is_product(self, features: Tensor) -> bool:
        sizes = {*self.kernel_size, *self.stride, self.groups}
        suits = features.dim() == 4 and features.device.type == "cpu" and features.shape[1] == self.in_channels
        return suits and sizes == {1} and self.padding == (0, 0)
