"""Images -> features: what the papers put below their first capsules.

All take images ``(b, channel, row, column)`` and return a feature map of the same axes. Any other module that does so
can stand in their place.
"""

from torchcaps.backbones.convolutions import ConvStack, ConvStem, CoordinateGrid, NormedConvStack, SwishStack
from torchcaps.backbones.residual import (
    PaddedShortcut,
    PreactivatedBlock,
    ResidualBlock,
    ResidualTrunk,
    ResNetV2,
    resnet18_trunk,
    resnet20_trunk,
    tsai_resnet,
)

__all__ = [
    "ConvStack",
    "ConvStem",
    "CoordinateGrid",
    "NormedConvStack",
    "PaddedShortcut",
    "PreactivatedBlock",
    "ResNetV2",
    "ResidualBlock",
    "ResidualTrunk",
    "SwishStack",
    "resnet18_trunk",
    "resnet20_trunk",
    "tsai_resnet",
]
