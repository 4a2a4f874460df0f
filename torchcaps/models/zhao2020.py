"""Zhao, Wang and Huang, *An Efficient Agreement Mechanism in CapsNets by Pairwise Product*, ECAI 2020.

ResNet-v2 blocks, primary capsules, and dense layers of matrix capsules with batch norm between votes and agreement
(Fig. 3); with a decoder of transposed convolutions for reconstructions (Fig. 6).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from torchcaps.backbones import ResNetV2
from torchcaps.capsules import Pose
from torchcaps.decoders import DeconvolutionDecoder
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Dense, Primary, routing
from torchcaps.routing import resolve
from torchcaps.votes.norm import NormAxes


@dataclass(frozen=True)
class ResidualCapsConfig:
    """``blocks`` of each of the three stages; ``hidden`` the capsules of the layers before the classes; ``vote_norm``
    what has statistics of its own in the batch norm of votes. ``routing`` is ``"fm"`` or any other; ``num_iters`` is
    for those that iterate."""

    smallest: ClassVar[Smallest] = {"blocks": 1, "width": 4}

    image_size: ImageSize = 32
    channels: int = 3
    classes: int = 10
    blocks: int = 8
    width: int = 16
    primary_caps: int = 4
    pose: Pose = (4, 4)
    hidden: tuple[int, ...] = (32, 16)
    vote_norm: NormAxes | None = "component"
    routing: str = "fm"
    num_iters: int = 3
    decoder: bool = False
    decoder_width: int = 64

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def residual_capsules(config: ResidualCapsConfig) -> CapsuleNet:
    # Between capsule layers goes ŝ itself; only the last layer's poses are unit vectors.
    inner = {"unit_pose": False} if resolve(config.routing).takes("unit_pose") else {}
    between = routing(config.routing, config.num_iters, **inner)
    last = routing(config.routing, config.num_iters)
    return CapsuleNet(
        image=config.input_shape,
        backbone=ResNetV2(config.channels, blocks=config.blocks, width=config.width),
        primary=Primary("normalized", config.primary_caps, config.pose),
        layers=[
            *(Dense(capsules, config.pose, between, vote_norm=config.vote_norm) for capsules in config.hidden),
            Dense(config.classes, config.pose, last, vote_norm=config.vote_norm),
        ],
        head=resolve(config.routing).head,
        decoder=partial(DeconvolutionDecoder, width=config.decoder_width) if config.decoder else None,
    )


CIFAR10 = ResidualCapsConfig()
SHALLOW = replace(CIFAR10, channels=1, blocks=1, hidden=())

MODELS: dict[str, ModelEntry] = {
    "zhao2020_cifar10": ModelEntry(
        "CIFAR-10 and SVHN, three capsule layers", residual_capsules, CIFAR10, "less than 1 M"
    ),
    "zhao2020_fashion_mnist": ModelEntry(
        "Fashion-MNIST, three capsule layers",
        residual_capsules,
        replace(CIFAR10, channels=1, image_size=28),
        "less than 1 M",
    ),
    "zhao2020_affnist": ModelEntry(
        "affNIST, one capsule layer and decoder",
        residual_capsules,
        replace(SHALLOW, image_size=40, decoder=True),
        "395 K",
        "the paper's 199 K and 196 K count the running statistics of batch norm as well; with them ours are 395,153",
    ),
    "zhao2020_multimnist": ModelEntry(
        "MultiMNIST, one capsule layer and decoder",
        residual_capsules,
        replace(SHALLOW, image_size=36, blocks=2, decoder=True),
        "457 K",
        "the paper does not give the blocks of each stage; of one, two or three, two come nearest to its figure",
    ),
    "zhao2020_smallnorb": ModelEntry(
        "smallNORB, one capsule layer",
        residual_capsules,
        replace(SHALLOW, channels=2, classes=5, vote_norm="pair"),
    ),
}
