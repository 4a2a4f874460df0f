"""Ribeiro, Leontidis and Kollias, *Capsule Routing via Variational Bayes*, AAAI 2020.

A convolution with batch norm, primary capsules with batch norm, two convolutional capsule layers, and class capsules
whose weights all positions share, with each position's coordinates added to its votes. The tiny network has class
capsules with weights of every place, right above primary capsules that halve the grid.
"""

from dataclasses import dataclass
from typing import ClassVar

from torchcaps.backbones import ConvStem
from torchcaps.capsules import Pose
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Class, Conv, Dense, LayerSpec, Primary, routing
from torchcaps.routing import resolve


@dataclass(frozen=True)
class VariationalConfig:
    """``primary_caps`` are the types of the primary capsules, which see a field of ``primary_kernel`` every
    ``primary_stride`` positions; ``caps`` those of the convolutional layers, the first of which halves the grid.
    Without any the class capsules have weights of every place. ``coordinate_scale`` multiplies the rows and columns
    that are added to the votes for the classes: one over the rows of the authors' grid. ``start`` says what
    couplings begin with, as in ``vb_routing``; the authors' code has ``"types"``."""

    smallest: ClassVar[Smallest] = {"stem_channels": 8, "primary_caps": 2}

    image_size: ImageSize = 32
    channels: int = 2
    classes: int = 5
    stem_channels: int = 64
    primary_caps: int = 8
    primary_kernel: int = 1
    primary_stride: int = 1
    caps: tuple[int, ...] = (16, 16)
    pose: Pose = (4, 4)
    routing: str = "vb"
    num_iters: int = 3
    start: str = "seen"
    coordinates: bool = True
    coordinate_scale: float = 0.25

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def variational(config: VariationalConfig) -> CapsuleNet:
    """The network."""
    kind = resolve(config.routing)
    options = {"start": config.start} if kind.takes("start") else {}
    route = routing(config.routing, config.num_iters, **options)
    layers: list[LayerSpec] = [
        Conv(caps, config.pose, 3, stride=1 if number else 2, routing=route) for number, caps in enumerate(config.caps)
    ]
    if layers:
        classes = Class(
            config.classes,
            config.pose,
            route,
            coordinates=config.coordinates,
            coordinate_scale=config.coordinate_scale,
        )
    else:
        classes = Dense(config.classes, config.pose, route)
    primary = (
        ("kernel_size", config.primary_kernel),
        ("stride", config.primary_stride),
        ("per", "type"),
    )
    return CapsuleNet(
        image=config.input_shape,
        backbone=ConvStem(config.channels, config.stem_channels, 5, stride=2, batch_norm=True, bias=False),
        primary=Primary("batch_norm", config.primary_caps, config.pose, primary),
        layers=[*layers, classes],
        head=kind.head,
    )


MODELS: dict[str, ModelEntry] = {
    "vb2020_smallnorb": ModelEntry("smallNORB, three layers of capsules", variational, VariationalConfig()),
    "vb2020_smallnorb_tiny": ModelEntry(
        "smallNORB, one layer of capsules",
        variational,
        VariationalConfig(primary_caps=16, primary_kernel=3, primary_stride=2, caps=()),
    ),
}
