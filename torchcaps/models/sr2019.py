"""Hahn, Pyeon and Kim, *Self-Routing Capsule Networks*, NeurIPS 2019.

A ResNet-20 or a stack of convolutions, primary capsules with batch norm, convolutional capsules whose poses are
normalized, and class capsules with a weight for each child of the map. These have no poses: votes of one number are the
logits of the couplings, and presences are the probabilities of the classes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from torchcaps.backbones import NormedConvStack, resnet20_trunk
from torchcaps.capsules import Pose
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Conv, Dense, Primary, routing
from torchcaps.routing import resolve

STRIDES = (1, 2)  # of the stack of convolutions, in turn


@dataclass(frozen=True)
class SelfRoutingConfig:
    """``backbone`` is ``"resnet20"``, whose first of three stages of ``blocks`` has ``width`` channels,
    ``"convolutions"`` of ``widths`` channels, or a module of your own. ``depth`` is the number of capsule layers: SR-1
    has the class capsules alone, SR-2 a convolution of capsules below them. Another ``routing`` routes the same layers;
    its class capsules have poses."""

    smallest: ClassVar[Smallest] = {"width": 4, "blocks": 1, "widths": (4, 4, 4), "caps": 2, "pose": 4}

    image_size: ImageSize = 32
    channels: int = 3
    classes: int = 10
    backbone: str | nn.Module = "resnet20"
    width: int = 16
    blocks: int = 3
    widths: tuple[int, ...] = (16, 32, 32, 64, 64, 128)
    caps: int = 32
    pose: Pose = 16
    depth: int = 1
    routing: str = "self_routing"
    num_iters: int = 3

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def self_routing_net(config: SelfRoutingConfig) -> CapsuleNet:
    """The network."""
    if config.depth < 1:
        raise ValueError(f"depth is a number of capsule layers, at least 1; got depth={config.depth}")
    kind = resolve(config.routing)
    inner = routing(config.routing, config.num_iters)
    classes = Dense(config.classes, config.pose, inner)
    if kind.takes("logits"):
        classes = Dense(config.classes, 1, routing(config.routing, config.num_iters, logits="votes"))
    padded = (("kernel_size", 3), ("padding", 1))
    between = Conv(config.caps, config.pose, 3, 2, inner, padding=1, pose_norm="component")
    return CapsuleNet(
        image=config.input_shape,
        backbone=_backbone(config),
        primary=Primary("batch_norm", config.caps, config.pose, padded),
        layers=[*[between] * (config.depth - 1), classes],
        head=kind.head,
    )


def _backbone(config: SelfRoutingConfig) -> nn.Module:
    if isinstance(config.backbone, nn.Module):
        return config.backbone
    if config.backbone == "resnet20":
        return resnet20_trunk(config.channels, width=config.width, blocks=config.blocks)
    if config.backbone == "convolutions":
        strides = [STRIDES[number % 2] for number in range(len(config.widths))]
        return NormedConvStack(config.channels, config.widths, strides)
    raise ValueError(f"no backbone {config.backbone!r}; there are 'resnet20' and 'convolutions', or give a module")


CIFAR10 = SelfRoutingConfig()

MODELS: dict[str, ModelEntry] = {
    "sr2019_cifar10": ModelEntry("CIFAR-10, class capsules on ResNet-20 (SR-1)", self_routing_net, CIFAR10),
    "sr2019_cifar10_deep": ModelEntry(
        "CIFAR-10, one more layer of capsules (SR-2)", self_routing_net, replace(CIFAR10, depth=2)
    ),
    "sr2019_smallnorb": ModelEntry(
        "smallNORB, class capsules on six convolutions; one image of a pair",
        self_routing_net,
        replace(CIFAR10, channels=1, classes=5, backbone="convolutions"),
    ),
}
