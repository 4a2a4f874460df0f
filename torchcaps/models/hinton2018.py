"""Hinton, Sabour and Frosst, *Matrix Capsules with EM Routing*, ICLR 2018.

A convolution with A channels, primary capsules of B types, two convolutional capsule layers of C and D types, and class
capsules whose weights all positions share, with each position's coordinates added to its votes. Poses are matrices.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from torchcaps.backbones import ConvStem
from torchcaps.capsules import Pose
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Class, Conv, Primary, routing
from torchcaps.norms import Per
from torchcaps.routing import rising_inverse_temperature
from torchcaps.votes import Competition


@dataclass(frozen=True)
class MatrixCapsConfig:
    """``caps`` are B, C and D. ``inverse_temperature`` is the final λ of the convolutional layers and
    ``class_temperature_share`` the part of it that the class layer has (the authors' code; the paper has no schedule).
    ``competition`` says which parents share out a child: all that see it, or those of each receptive field alone
    (``"field"``). Not the paper's: ``stem_norm`` puts batch norm into the stem, further ``stem_strides`` add 3×3
    convolutions to it, and ``pose_norm`` normalizes the poses of all layers but the last over the batch, each component
    of each type or each type, and the scores of primary capsules with them. ``eps`` is added to the variances of
    votes, and ``class_weight_std`` is the deviation of the class layer's weights at the start."""

    smallest: ClassVar[Smallest] = {"stem_channels": 8, "caps": (2, 2, 2)}

    image_size: ImageSize = 32
    channels: int = 2
    classes: int = 5
    stem_channels: int = 32
    stem_kernel: int = 5
    stem_padding: int = 0
    stem_norm: bool = False
    stem_strides: tuple[int, ...] = (2,)
    pose_norm: Per | None = None
    caps: tuple[int, int, int] = (32, 32, 32)
    pose: Pose = (4, 4)
    num_iters: int = 3
    inverse_temperature: float = 0.01
    class_temperature_share: float = 0.25
    class_weight_std: float = 0.01
    eps: float = 5e-4
    competition: Competition = "image"
    coordinates: bool = True

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def matrix_capsules(config: MatrixCapsConfig, backbone: nn.Module | None = None) -> CapsuleNet:
    """The network; ``backbone`` takes the place of the first convolution."""
    if len(config.caps) != 3:
        raise ValueError(f"caps are B, C and D, three numbers; got {config.caps}")
    if not config.stem_strides:
        raise ValueError("stem_strides has a stride for each convolution of the stem, at least one; got ()")
    primary, lower, upper = config.caps

    def em(final: float, initial_std: float | None = None):
        temperatures = rising_inverse_temperature(config.num_iters, final)
        return routing(
            "em", config.num_iters, inverse_temperature=temperatures, eps=config.eps, initial_std=initial_std
        )

    conv = em(config.inverse_temperature)
    last = em(config.inverse_temperature * config.class_temperature_share, config.class_weight_std)
    norm = config.pose_norm
    kind, options = ("matrix", ()) if norm is None else ("batch_norm", (("per", norm),))
    return CapsuleNet(
        image=config.input_shape,
        backbone=backbone or build_stem(config),
        primary=Primary(kind, primary, config.pose, options),
        layers=[
            Conv(lower, config.pose, 3, stride=2, routing=conv, competition=config.competition, pose_norm=norm),
            Conv(upper, config.pose, 3, stride=1, routing=conv, competition=config.competition, pose_norm=norm),
            Class(config.classes, config.pose, last, coordinates=config.coordinates),
        ],
    )


def build_stem(config: MatrixCapsConfig) -> nn.Module:
    """The first convolution, which has a kernel of its own, and further ones of 3×3 if there are more strides."""
    width, norm = config.stem_channels, config.stem_norm
    stride, *others = config.stem_strides
    kernel, padding = config.stem_kernel, config.stem_padding
    first = ConvStem(config.channels, width, kernel, stride=stride, padding=padding, batch_norm=norm)
    more = [ConvStem(width, width, 3, stride=each, padding=1, batch_norm=norm) for each in others]
    return nn.Sequential(first, *more) if more else first


MODELS: dict[str, ModelEntry] = {
    "hinton2018_smallnorb": ModelEntry(
        "matrix capsules for smallNORB, A = B = C = D = 32",
        matrix_capsules,
        MatrixCapsConfig(),
        "310 K",
        "quoted by Heinsen 2019, rounded; the two capsule convolutions have 294,912 weights, all else in ours 22,282",
    ),
    "hinton2018_smallnorb_small": ModelEntry(
        "matrix capsules for smallNORB, A = 64, B = 8, C = D = 16",
        matrix_capsules,
        MatrixCapsConfig(stem_channels=64, caps=(8, 16, 16)),
    ),
}
