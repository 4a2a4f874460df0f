"""The module: PyTorch's convolution, made in the way that costs least."""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn

from torchcaps.convolution.fourier import convolve_by_fourier
from torchcaps.convolution.sizes import Convolution, Way
from torchcaps.convolution.winograd import convolve_by_winograd, is_fit_for_winograd
from torchcaps.kernels.library import must_be_traceable, take_kernels
from torchcaps.kernels.modes import is_full_precision
from torchcaps.kernels.waiting import give_way

MOST_POSITIONS = 32**2
"""Grids of more positions are not transformed whole: their rows and columns are multiplied with matrices."""

WAYS: dict[Way, Callable[[Tensor, Tensor, Convolution], Tensor]] = {
    "fourier": convolve_by_fourier,
    "winograd": convolve_by_winograd,
}


class Conv2d(nn.Conv2d):
    """``nn.Conv2d``, on a CPU by Fourier transforms (large windows) or Winograd's (3×3) where they are faster.

    Args:
        *arguments: those of ``nn.Conv2d``. Parameters, saved weights and, but for rounding, results are the same too.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> Conv2d(256, 256, 9, stride=2)(torch.zeros(1, 256, 20, 20)).shape
        torch.Size([1, 256, 6, 6])
    """

    def forward(self, input: Tensor) -> Tensor:
        sizes = self._describe(input)
        way = "direct" if sizes is None else self._choose(input, sizes)
        if sizes is None or way == "direct":
            return super().forward(input)
        give_way()
        total = WAYS[way](input, self.weight, sizes)
        return total if self.bias is None else total.add_(self.bias[:, None, None])

    def _describe(self, features: Tensor) -> Convolution | None:
        """The sizes, if transforms can do the work."""
        if must_be_traceable() or features.dim() != 4 or features.device.type != "cpu":
            return None
        if (
            self.groups != 1
            or set(self.dilation) != {1}
            or self.padding_mode != "zeros"
            or isinstance(self.padding, str)
        ):
            return None
        same = type(features) is Tensor and features.dtype == self.weight.dtype in (torch.float32, torch.float64)
        if not same or features.shape[1] != self.in_channels or not is_full_precision(features.device):
            return None
        found = Convolution(
            features.shape[0], self.in_channels, self.out_channels, tuple(features.shape[2:]), self.kernel_size,
            self.stride, self.padding,
        )  # fmt: skip
        return found if min(found.examples, *found.outputs) >= 1 else None

    def _choose(self, features: Tensor, sizes: Convolution) -> Way:
        """The way that costs least, by the measured costs."""
        ways: list[Way] = ["direct"]
        if take_kernels(features) and prod(sizes.positions) <= MOST_POSITIONS:
            ways.append("fourier")
        if take_kernels(features) and is_fit_for_winograd(sizes) and features.is_contiguous():
            ways.append("winograd")
        training = torch.is_grad_enabled() and (features.requires_grad or self.weight.requires_grad)
        return sizes.find_cheapest(ways, training=training)
