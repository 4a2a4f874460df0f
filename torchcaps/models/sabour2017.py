"""Sabour, Frosst and Hinton, *Dynamic Routing Between Capsules*, NIPS 2017.

CapsNet (Fig. 1): a convolution, primary capsules by a second convolution, class capsules by dynamic routing; the
decoder of Fig. 2 beside them.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from torchcaps.backbones import ConvStem
from torchcaps.decoders import FullyConnectedDecoder
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Dense, Primary, routing, squash_option
from torchcaps.routing import resolve


@dataclass(frozen=True)
class CapsNetConfig:
    """CapsNet, as for MNIST. ``orphan`` gives the routing a category of none of the above (§7); ``coupled`` divides the
    primary capsules by the number of their types, as the authors' code does. ``squash`` is the squash of the primary
    capsules, ``class_squash`` that of the class capsules (``torchcaps.squashing.SQUASHES``); left out, it is the one
    that the routing's paper has. Any routing can take the place of dynamic routing."""

    smallest: ClassVar[Smallest] = {"stem_channels": 8, "primary_caps": 2}

    image_size: ImageSize = 28
    channels: int = 1
    classes: int = 10
    stem_channels: int = 256
    kernel_size: int = 9
    primary_caps: int = 32
    primary_pose: int = 8
    class_pose: int = 16
    routing: str = "dynamic"
    num_iters: int = 3
    orphan: bool = False
    coupled: bool = False
    squash: str = "rational"
    class_squash: str | None = None
    decoder: bool = True
    decoder_widths: tuple[int, int] = (512, 1024)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def capsnet(config: CapsNetConfig, backbone: nn.Module | None = None, primary_stride: int = 2) -> CapsuleNet:
    """The network; ``backbone`` takes the place of the first convolution."""
    options: dict[str, object] = {"orphan": True} if config.orphan else {}
    if options and not resolve(config.routing).takes("orphan"):
        raise ValueError(
            f"orphan=True is for routings with an orphan category; got routing={config.routing!r}: give orphan=False "
            "(--model.no-orphan)"
        )
    options |= squash_option(config.routing, config.class_squash)
    primary = (
        ("kernel_size", config.kernel_size),
        ("stride", primary_stride),
        ("coupled", config.coupled),
        ("squash", config.squash),
    )
    return CapsuleNet(
        image=config.input_shape,
        backbone=backbone or ConvStem(config.channels, config.stem_channels, config.kernel_size),
        primary=Primary("squashed", config.primary_caps, config.primary_pose, primary),
        layers=[Dense(config.classes, config.class_pose, routing(config.routing, config.num_iters, **options))],
        head=resolve(config.routing).head,
        decoder=partial(FullyConnectedDecoder, hidden=config.decoder_widths) if config.decoder else None,
    )


MODELS: dict[str, ModelEntry] = {
    "sabour2017_mnist": ModelEntry("CapsNet for MNIST", capsnet, CapsNetConfig(), "8.2 M"),
    "sabour2017_multimnist": ModelEntry("CapsNet for MultiMNIST", capsnet, CapsNetConfig(image_size=36), "11.36 M"),
    "sabour2017_affnist": ModelEntry(
        "CapsNet for affNIST (§5.2)",
        capsnet,
        CapsNetConfig(image_size=40),
        "13.40 M",
        "the figure is Zhao 2020's (Table 3), whose parts, 11.2 M and 2.2 M, are cut off after the first decimal",
    ),
    "sabour2017_cifar10": ModelEntry(
        "CapsNet for CIFAR-10: 24×24 patches, 64 types, orphan category",
        capsnet,
        CapsNetConfig(image_size=24, channels=3, primary_caps=64, orphan=True),
    ),
    "sabour2017_svhn": ModelEntry(
        "the small CapsNet for SVHN",
        capsnet,
        CapsNetConfig(image_size=32, channels=3, stem_channels=64, primary_caps=16, primary_pose=6, class_pose=8),
    ),
    "sabour2017_smallnorb": ModelEntry(
        "CapsNet for smallNORB, 32×32 crops", capsnet, CapsNetConfig(image_size=32, channels=2, classes=5)
    ),
}
