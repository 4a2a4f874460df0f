"""Images -> features: what the papers put below their first capsules.

All take images ``(b, channel, row, column)`` and return a feature map of the same axes. Any other module that does so
can stand in their place.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Pair
from torchcaps.parameters import Device, Factory, reset_children

Images = Float[Tensor, "b channel row column"]  # or features that go in
Features = Float[Tensor, "b feature y x"]


class ConvStem(nn.Sequential):
    """One convolution and ReLU, with batch norm in between if asked for.

    Args:
        in_channels: channels of the images.
        out_channels: channels of the features.
        kernel_size: rows and columns of the convolution: one number for both, or a pair.
        stride: steps of the convolution.
        padding: zeros added on each side of the images.
        batch_norm: whether batch norm comes before the ReLU.
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        parts: list[nn.Module] = [nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, **factory)]
        if batch_norm:
            parts.append(nn.BatchNorm2d(out_channels, **factory))
        super().__init__(*parts, nn.ReLU())

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)


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
            convolution = nn.Conv2d(channels, out_channels, 3, stride=1 + index % 2, **factory)
            _draw_normal(convolution)
            parts += [nn.BatchNorm2d(channels, **factory), convolution, nn.SiLU()]
            channels = out_channels
        super().__init__(*parts)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for part in self:
            if isinstance(part, nn.BatchNorm2d):
                part.reset_parameters()
            elif isinstance(part, nn.Conv2d):
                part.reset_parameters()
                _draw_normal(part)


def _draw_normal(convolution: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(convolution.weight)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)


def _convolution(
    in_channels: int, out_channels: int, factory: Factory, *, kernel_size: int = 3, stride: int = 1
) -> nn.Conv2d:
    """One that keeps the size of the grid but for the stride, without bias."""
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False, **factory)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016), normalized after each convolution.

    Args:
        in_channels: channels that come in.
        out_channels: channels that go out.
        stride: steps of the first convolution and of the shortcut.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> ResidualBlock(4, 8, stride=2)(torch.zeros(1, 4, 6, 6)).shape
        torch.Size([1, 8, 3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: Factory = {"device": device, "dtype": dtype}
        self.residual = nn.Sequential(
            _convolution(in_channels, out_channels, factory, stride=stride),
            nn.BatchNorm2d(out_channels, **factory),
            nn.ReLU(),
            _convolution(out_channels, out_channels, factory),
            nn.BatchNorm2d(out_channels, **factory),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                _convolution(in_channels, out_channels, factory, kernel_size=1, stride=stride),
                nn.BatchNorm2d(out_channels, **factory),
            )

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)

    def forward(self, features: Images) -> Features:
        return F.relu(self.residual(features) + self.shortcut(features))


class ResidualTrunk(nn.Sequential):
    """A 3×3 convolution and stages of residual blocks.

    Args:
        in_channels: channels of the images.
        stages: for each stage ``(channels, blocks, stride)``.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, channels of the last stage, row', column')``.

    Returns:
        The features.

    Example:
        >>> ResidualTrunk(3, [(4, 1, 1), (8, 2, 2)])(torch.zeros(1, 3, 6, 6)).shape
        torch.Size([1, 8, 3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        stages: Sequence[tuple[int, int, int]],
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        width = stages[0][0]
        parts: list[nn.Module] = [
            _convolution(in_channels, width, factory),
            nn.BatchNorm2d(width, **factory),
            nn.ReLU(),
        ]
        for out_channels, blocks, stride in stages:
            for index in range(blocks):
                parts.append(ResidualBlock(width, out_channels, stride=stride if index == 0 else 1, **factory))
                width = out_channels
        super().__init__(*parts)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)


def tsai_resnet(
    in_channels: int = 3,
    *,
    width: int = 64,
    out_channels: int = 128,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> ResidualTrunk:
    """Make the ResNet backbone of Tsai 2020: three blocks of 64 channels, four of 128 at half the size.

    Args:
        in_channels: channels of the images.
        width: channels of the first three blocks.
        out_channels: channels of the other four.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, out_channels, row / 2, column / 2)``.

    Returns:
        The backbone.

    Example:
        >>> tsai_resnet()(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 128, 16, 16])
    """
    return ResidualTrunk(in_channels, [(width, 3, 1), (out_channels, 4, 2)], device=device, dtype=dtype)


def resnet18_trunk(
    in_channels: int = 3, *, width: int = 64, device: Device = None, dtype: torch.dtype | None = None
) -> ResidualTrunk:
    """Make ResNet-18 for images of 32×32: no pooling at the start, the first convolution is 3×3.

    Args:
        in_channels: channels of the images.
        width: channels of the first stage; each of the other three has twice as many as the one before.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, 8 * width, row / 8, column / 8)``.

    Returns:
        The backbone.

    Example:
        >>> resnet18_trunk(width=4)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 32, 4, 4])
    """
    stages = [(width, 2, 1), (2 * width, 2, 2), (4 * width, 2, 2), (8 * width, 2, 2)]
    return ResidualTrunk(in_channels, stages, device=device, dtype=dtype)


class PreactivatedBlock(nn.Module):
    """A block of ResNet-v2: batch norm and ReLU come before each convolution, the shortcut is left alone.

    Args:
        in_channels: channels that come in.
        out_channels: channels that go out.
        stride: steps of the first convolution and of the shortcut.
        activated: whether the features come out of a ReLU already, as the stem's do; then the first pair is left out.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> PreactivatedBlock(4, 8, stride=2)(torch.zeros(1, 4, 6, 6)).shape
        torch.Size([1, 8, 3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int = 1,
        activated: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: Factory = {"device": device, "dtype": dtype}
        before: list[nn.Module] = [] if activated else [nn.BatchNorm2d(in_channels, **factory), nn.ReLU()]
        self.residual = nn.Sequential(
            *before,
            _convolution(in_channels, out_channels, factory, stride=stride),
            nn.BatchNorm2d(out_channels, **factory),
            nn.ReLU(),
            _convolution(out_channels, out_channels, factory),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != out_channels:
            self.shortcut = _convolution(in_channels, out_channels, factory, kernel_size=1, stride=stride)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)

    def forward(self, features: Images) -> Features:
        return self.residual(features) + self.shortcut(features)


class ResNetV2(nn.Sequential):
    """ResNet-v2 for small images, as Zhao 2020 has it: three stages, each at half the size of the one before.

    Args:
        in_channels: channels of the images.
        blocks: blocks of each stage.
        width: channels of the first stage; the others have twice and four times as many.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, 4 * width, row / 4, column / 4)``.

    Returns:
        The features.

    Example:
        >>> ResNetV2(3, blocks=1)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 64, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        *,
        blocks: int = 8,
        width: int = 16,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        parts: list[nn.Module] = [
            _convolution(in_channels, width, factory),
            nn.BatchNorm2d(width, **factory),
            nn.ReLU(),
        ]
        current = width
        for stage in range(3):
            out_channels = width << stage
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                first = stage == 0 and index == 0
                parts.append(PreactivatedBlock(current, out_channels, stride=stride, activated=first, **factory))
                current = out_channels
        super().__init__(*parts, nn.BatchNorm2d(current, **factory), nn.ReLU())
        self._draw()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)
        self._draw()

    def _draw(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                _draw_normal(module)
