"""The module: PyTorch's convolution, made in the way that costs least."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchcaps.convolution.fourier import convolve_by_fourier
from torchcaps.convolution.implicit import convolve_by_product
from torchcaps.convolution.sizes import Convolution, Way
from torchcaps.convolution.winograd import convolve_by_winograd, is_fit_for_winograd
from torchcaps.kernels.library import must_be_traceable, take_kernels
from torchcaps.kernels.modes import is_full_precision
from torchcaps.kernels.waiting import give_way

WAYS: dict[Way, Callable[[Tensor, Tensor, Tensor | None, Convolution], Tensor]] = {
    "implicit": convolve_by_product,
    "fourier": convolve_by_fourier,
    "winograd": convolve_by_winograd,
}


class Conv2d(nn.Conv2d):
    """``nn.Conv2d``, on a CPU in the fastest way: PyTorch's, by a matrix product with features that are not
    unfolded (few channels, strides), by Fourier transforms (large windows) or by Winograd's (3×3).

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
        return WAYS[way](input, self.weight, self.bias, sizes)

    def _describe(self, features: Tensor) -> Convolution | None:
        """The sizes, if others than PyTorch can do the work."""
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
        if take_kernels(features):
            ways += list_native_ways(sizes, contiguous=features.is_contiguous())
        learning = torch.is_grad_enabled()
        gradients = learning and features.requires_grad, learning and self.weight.requires_grad
        return sizes.find_cheapest(ways, gradients=gradients)


def list_native_ways(sizes: Convolution, *, contiguous: bool = True) -> list[Way]:
    """The ways besides PyTorch's own that are for such sizes and such an order of memory."""
    ways: list[Way] = ["implicit", "fourier"] if contiguous else ["fourier"]
    if contiguous and is_fit_for_winograd(sizes):
        ways.append("winograd")
    return ways
