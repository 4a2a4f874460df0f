"""Plain stacks of convolutions."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.backbones.swish_norm import swish_and_norm
from torchcaps.capsules import Pair
from torchcaps.convolution import Conv2d
from torchcaps.parameters import Device, Factory, Resettable

Images = Float[Tensor, "b channel row column"]  # or features that go in


Features = Float[Tensor, "b feature y x"]


class ConvStem(Resettable, nn.Sequential):
    """One convolution and ReLU, with batch norm in between if asked for.

    Args:
        in_channels: channels of the images.
        out_channels: channels of the features.
        kernel_size: rows and columns of the convolution: one number for both, or a pair.
        stride: steps of the convolution.
        padding: zeros added on each side of the images.
        batch_norm: whether batch norm comes before the ReLU.
        bias: whether the convolution has a bias.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> ConvStem(1, 256, kernel_size=9)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 256, 20, 20])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        batch_norm: bool = False,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        window = (kernel_size, stride, padding)
        parts: list[nn.Module] = [Conv2d(in_channels, out_channels, *window, bias=bias, **factory)]
        if batch_norm:
            parts.append(nn.BatchNorm2d(out_channels, **factory))
        super().__init__(*parts, nn.ReLU())


class NormedConvStack(Resettable, nn.Sequential):
    """Convolutions without bias, each with batch norm and ReLU, that keep the size of the grid but for their strides
    (Hahn 2019 on smallNORB).

    Args:
        in_channels: channels of the images.
        widths: channels of each convolution.
        strides: steps of each.
        kernel_size: rows and columns of all of them; an odd number.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, widths[-1], row', column')``.

    Returns:
        The features.

    Example:
        >>> NormedConvStack(1, (16, 32), (1, 2))(torch.zeros(2, 1, 32, 32)).shape
        torch.Size([2, 32, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        widths: Sequence[int],
        strides: Sequence[int],
        *,
        kernel_size: int = 3,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if len(widths) != len(strides) or not widths:
            raise ValueError(f"every convolution has a width and a stride; got widths={widths} and strides={strides}")
        options: dict[str, Any] = {"padding": kernel_size // 2, "batch_norm": True, "bias": False}
        options |= {"device": device, "dtype": dtype}
        pairs = zip((in_channels, *widths), widths, strides, strict=False)
        super().__init__(*(ConvStem(below, width, kernel_size, stride=step, **options) for below, width, step in pairs))


class CoordinateGrid(nn.Module):
    """Two more channels that say where each pixel is: its row and its column, from -1 to 1 (Heinsen 2019, Fig. 3).

    Shape:
        - images: ``(b, channel, row, column)`` to ``(b, channel + 2, row, column)``.

    Returns:
        The images with their coordinates.

    Example:
        >>> CoordinateGrid()(torch.zeros(1, 2, 3, 3))[0, 2:, :, 0]
        tensor([[-1.,  0.,  1.],
                [-1., -1., -1.]])
    """

    def forward(self, images: Images) -> Features:
        batch, _, height, width = images.shape
        row = torch.linspace(-1.0, 1.0, height, dtype=images.dtype, device=images.device)
        column = torch.linspace(-1.0, 1.0, width, dtype=images.dtype, device=images.device)
        places = torch.stack((row[:, None].expand(-1, width), column.expand(height, -1)))
        return torch.cat((images, places.expand(batch, -1, -1, -1)), dim=1)


class SwishStack(nn.Sequential):
    """Heinsen 2019: 3×3 convolutions without padding, strides 1 and 2 in turn, between batch norm and Swish.

    Args:
        in_channels: channels of the images.
        out_channels: channels of every convolution.
        depth: how many convolutions.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> SwishStack(3, 16, depth=2)(torch.zeros(2, 3, 11, 11)).shape
        torch.Size([2, 16, 4, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        depth: int = 6,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        parts: list[nn.Module] = []
        channels = in_channels
        for index in range(depth):
            convolution = Conv2d(channels, out_channels, 3, stride=1 + index % 2, **factory)
            _draw_normal(convolution)
            parts += [nn.BatchNorm2d(channels, **factory), convolution, nn.SiLU()]
            channels = out_channels
        super().__init__(*parts)

    def forward(self, input: Tensor) -> Tensor:
        norm, convolution, *rest = self
        features = convolution(norm(input))
        for swish, norm, convolution in zip(rest[0::3], rest[1::3], rest[2::3], strict=False):
            features = convolution(swish_and_norm(features, swish, norm))
        return rest[-1](features)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in self:
            if isinstance(part, nn.BatchNorm2d):
                part.reset_parameters()
            elif isinstance(part, nn.Conv2d):
                part.reset_parameters()
                _draw_normal(part)


Norm = Literal["batch", "instance", "none"]
"""How features are normalized: over the batch, within each image, or not at all."""


class ConvStack(Resettable, nn.Sequential):
    """Convolutions without padding, each with an activation and a norm *after* it (Efficient-CapsNet 2021).

    Weights are drawn from a Kaiming normal, biases are zero.

    Args:
        in_channels: channels of the images.
        layers: channels, kernel size and stride of each convolution.
        norm: ``"batch"``, ``"instance"`` or ``"none"``.
        negative_slope: slope of the activation below zero; 0 is ReLU.
        norm_first: whether the norm comes before the activation instead.
        eps: what the norms add to a variance.
        momentum: share of a batch in the running statistics of batch norm.
        norm_range: scales and shifts of the norms are drawn evenly from minus this to this, as the authors have it for
            instance norm; one and zero if left out.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, channels of the last layer, row', column')``.

    Returns:
        The features.

    Example:
        >>> ConvStack(1, [(32, 5, 1), (64, 3, 2)])(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 64, 11, 11])
    """

    def __init__(
        self,
        in_channels: int,
        layers: Sequence[tuple[int, Pair, Pair]],
        *,
        norm: Norm = "batch",
        negative_slope: float = 0.0,
        norm_first: bool = False,
        eps: float = 1e-5,
        momentum: float = 0.1,
        norm_range: float | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if norm not in get_args(Norm):
            raise ValueError(f"norm is 'batch', 'instance' or 'none'; got norm={norm!r}")
        factory: Factory = {"device": device, "dtype": dtype}
        parts: list[nn.Module] = []
        channels = in_channels
        for out_channels, kernel_size, stride in layers:
            parts.append(Conv2d(channels, out_channels, kernel_size, stride, **factory))
            after: list[nn.Module] = [nn.LeakyReLU(negative_slope) if negative_slope else nn.ReLU()]
            if norm == "batch":
                after.append(nn.BatchNorm2d(out_channels, eps=eps, momentum=momentum, **factory))
            elif norm == "instance":
                after.append(nn.InstanceNorm2d(out_channels, eps=eps, affine=True, **factory))
            parts += reversed(after) if norm_first else after
            channels = out_channels
        super().__init__(*parts)
        self.norm_range = norm_range
        self._draw()

    def _draw(self) -> None:
        for part in self:
            if isinstance(part, nn.Conv2d):
                _draw_normal(part)
            elif self.norm_range is not None and isinstance(part, nn.BatchNorm2d | nn.InstanceNorm2d):
                for parameter in part.parameters():
                    nn.init.uniform_(parameter, -self.norm_range, self.norm_range)


def _draw_normal(convolution: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(convolution.weight)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
