"""Residual networks."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import nn

from torchcaps.backbones.convolutions import Features, Images, _draw_normal
from torchcaps.convolution import Conv2d
from torchcaps.parameters import Device, Factory, Resettable

Shortcut = Literal["projection", "padding"]
"""How features pass by a residual block that changes their shape."""


def _check_shortcut(shortcut: str) -> None:
    if shortcut not in get_args(Shortcut):
        raise ValueError(f"no shortcut {shortcut!r}; there are {' and '.join(map(repr, get_args(Shortcut)))}")


def _convolution(
    in_channels: int, out_channels: int, factory: Factory, *, kernel_size: int = 3, stride: int = 1
) -> nn.Conv2d:
    """One that keeps the size of the grid but for the stride, without bias."""
    return Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False, **factory)


def _make_stem(in_channels: int, out_channels: int, factory: Factory) -> list[nn.Module]:
    """What comes before the first block: a 3×3 convolution, batch norm and ReLU."""
    return [_convolution(in_channels, out_channels, factory), nn.BatchNorm2d(out_channels, **factory), nn.ReLU()]


class PaddedShortcut(nn.Module):
    """Every so many rows and columns of the features, with channels of zeros before and behind theirs: a shortcut
    without parameters (He et al. 2016, option A).

    Args:
        in_channels: channels that come in.
        out_channels: channels that go out, no fewer.
        stride: steps along rows and columns.

    Shape:
        - features: ``(b, in_channels, row, column)`` to ``(b, out_channels, row', column')``.

    Returns:
        The features.

    Example:
        >>> PaddedShortcut(4, 8, stride=2)(torch.ones(1, 4, 6, 6)).sum((0, 2, 3))
        tensor([0., 0., 9., 9., 9., 9., 0., 0.])
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        if out_channels < in_channels:
            raise ValueError(f"a padded shortcut adds channels; got {in_channels} to {out_channels}")
        before = (out_channels - in_channels) // 2
        self.padding = (before, out_channels - in_channels - before)
        self.stride = stride

    def extra_repr(self) -> str:
        return f"padding={self.padding}, stride={self.stride}"

    def forward(self, features: Images) -> Features:
        return F.pad(features[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *self.padding))


class ResidualBlock(Resettable):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016), normalized after each convolution.

    Args:
        in_channels: channels that come in.
        out_channels: channels that go out.
        stride: steps of the first convolution and of the shortcut.
        shortcut: how features pass by where the block changes their shape: by a ``"projection"``, a 1×1 convolution
            with batch norm, or without parameters, by ``"padding"`` with channels of zeros (option A).
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
        shortcut: Shortcut = "projection",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_shortcut(shortcut)
        factory: Factory = {"device": device, "dtype": dtype}
        self.residual = nn.Sequential(
            _convolution(in_channels, out_channels, factory, stride=stride),
            nn.BatchNorm2d(out_channels, **factory),
            nn.ReLU(),
            _convolution(out_channels, out_channels, factory),
            nn.BatchNorm2d(out_channels, **factory),
        )
        self.shortcut: nn.Module = nn.Identity()
        if (stride > 1 or in_channels != out_channels) and shortcut == "padding":
            self.shortcut = PaddedShortcut(in_channels, out_channels, stride=stride)
        elif stride > 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                _convolution(in_channels, out_channels, factory, kernel_size=1, stride=stride),
                nn.BatchNorm2d(out_channels, **factory),
            )

    def forward(self, features: Images) -> Features:
        return F.relu(self.residual(features) + self.shortcut(features))


class ResidualTrunk(Resettable, nn.Sequential):
    """A 3×3 convolution and stages of residual blocks.

    Args:
        in_channels: channels of the images.
        stages: for each stage ``(channels, blocks, stride)``.
        shortcut: how features pass by the blocks that change their shape, as in ``ResidualBlock``.
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
        shortcut: Shortcut = "projection",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Factory = {"device": device, "dtype": dtype}
        width = stages[0][0]
        parts = _make_stem(in_channels, width, factory)
        for out_channels, blocks, stride in stages:
            for index in range(blocks):
                step = stride if index == 0 else 1
                parts.append(ResidualBlock(width, out_channels, stride=step, shortcut=shortcut, **factory))
                width = out_channels
        super().__init__(*parts)


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


def resnet20_trunk(
    in_channels: int = 3,
    *,
    width: int = 16,
    blocks: int = 3,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> ResidualTrunk:
    """Make ResNet-20 for images of 32×32 (He et al. 2016), as Hahn 2019 has it: three stages of three blocks each,
    with shortcuts without parameters.

    Args:
        in_channels: channels of the images.
        width: channels of the first stage; each of the other two has twice as many as the one before.
        blocks: blocks of each stage; with five it is ResNet-32, with nine ResNet-56.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - images: ``(b, in_channels, row, column)`` to ``(b, 4 * width, row / 4, column / 4)``.

    Returns:
        The backbone.

    Example:
        >>> resnet20_trunk(width=4)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 16, 8, 8])
    """
    stages = [(width, blocks, 1), (2 * width, blocks, 2), (4 * width, blocks, 2)]
    return ResidualTrunk(in_channels, stages, shortcut="padding", device=device, dtype=dtype)


class PreactivatedBlock(Resettable):
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

    def forward(self, features: Images) -> Features:
        return self.residual(features) + self.shortcut(features)


class ResNetV2(Resettable, nn.Sequential):
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
        parts = _make_stem(in_channels, width, factory)
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

    def _draw(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                _draw_normal(module)
