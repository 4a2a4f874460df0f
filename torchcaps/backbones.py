"""Images -> features: what the papers put below their first capsules.

All take images ``(b, channel, row, column)`` and return a feature map of the same axes. Any other module that does so
can stand in their place.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Images = Float[Tensor, "b channel row column"]  # or features that go in
Features = Float[Tensor, "b feature y x"]


class ConvStem(nn.Sequential):
    """One convolution and ReLU, with batch norm in between if asked for.

    >>> ConvStem(1, 256, kernel_size=9)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 256, 20, 20])
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        batch_norm: bool = False,
    ) -> None:
        parts: list[nn.Module] = [nn.Conv2d(channels, out_channels, kernel_size, stride, padding)]
        if batch_norm:
            parts.append(nn.BatchNorm2d(out_channels))
        super().__init__(*parts, nn.ReLU())


class CoordinateGrid(nn.Module):
    """Two more channels that say where each pixel is: its row and its column, from -1 to 1 (Heinsen 2019, Fig. 3).

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
    """Heinsen 2019: 3×3 convolutions without padding, strides 1 and 2 in turn, between batch norm and Swish."""

    def __init__(self, channels: int, out_channels: int, depth: int = 6) -> None:
        parts: list[nn.Module] = []
        for index in range(depth):
            convolution = nn.Conv2d(channels, out_channels, 3, stride=1 + index % 2)
            assert convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)
            parts += [nn.BatchNorm2d(channels), convolution, nn.SiLU()]
            channels = out_channels
        super().__init__(*parts)


def _convolution(channels: int, out_channels: int, kernel_size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out_channels, kernel_size, stride, padding=kernel_size // 2, bias=False)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016), normalised after each convolution."""

    def __init__(self, channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(channels, out_channels, stride=stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            _convolution(out_channels, out_channels),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = nn.Sequential(_convolution(channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))

    def forward(self, features: Images) -> Features:
        return F.relu(self.residual(features) + self.shortcut(features))


class ResidualTrunk(nn.Sequential):
    """A 3×3 convolution and stages of residual blocks, each stage ``(channels, blocks, stride)``."""

    def __init__(self, channels: int, stages: Sequence[tuple[int, int, int]]) -> None:
        width = stages[0][0]
        parts: list[nn.Module] = [_convolution(channels, width), nn.BatchNorm2d(width), nn.ReLU()]
        for out_channels, blocks, stride in stages:
            for index in range(blocks):
                parts.append(ResidualBlock(width, out_channels, stride if index == 0 else 1))
                width = out_channels
        super().__init__(*parts)


def tsai_resnet(channels: int = 3, width: int = 64, out_channels: int = 128) -> ResidualTrunk:
    """The ResNet backbone of Tsai 2020: three blocks of 64 channels, four of 128 at half the size.

    >>> tsai_resnet()(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 128, 16, 16])
    """
    return ResidualTrunk(channels, [(width, 3, 1), (out_channels, 4, 2)])


def resnet18_trunk(channels: int = 3, width: int = 64) -> ResidualTrunk:
    """ResNet-18 for images of 32×32: no pooling at the start, the first convolution is 3×3."""
    return ResidualTrunk(channels, [(width, 2, 1), (2 * width, 2, 2), (4 * width, 2, 2), (8 * width, 2, 2)])


class PreactivatedBlock(nn.Module):
    """A block of ResNet-v2: batch norm and ReLU come before each convolution, the shortcut is left alone.

    ``activated`` says that the features come out of a ReLU already, as the stem's do, so the first pair is left out.
    """

    def __init__(self, channels: int, out_channels: int, stride: int = 1, *, activated: bool = False) -> None:
        super().__init__()
        before: list[nn.Module] = [] if activated else [nn.BatchNorm2d(channels), nn.ReLU()]
        self.residual = nn.Sequential(
            *before,
            _convolution(channels, out_channels, stride=stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            _convolution(out_channels, out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = _convolution(channels, out_channels, 1, stride)

    def forward(self, features: Images) -> Features:
        return self.residual(features) + self.shortcut(features)


class ResNetV2(nn.Sequential):
    """ResNet-v2 for small images, as Zhao 2020 has it: stages of ``width``, twice and four times that many channels,
    each at half the size of the one before.

    >>> ResNetV2(3, blocks=1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 64, 8, 8])
    """

    def __init__(self, channels: int, blocks: int = 8, width: int = 16) -> None:
        parts: list[nn.Module] = [_convolution(channels, width), nn.BatchNorm2d(width), nn.ReLU()]
        current = width
        for stage in range(3):
            out_channels = width << stage
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                first = stage == 0 and index == 0
                parts.append(PreactivatedBlock(current, out_channels, stride, activated=first))
                current = out_channels
        super().__init__(*parts, nn.BatchNorm2d(current), nn.ReLU())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
