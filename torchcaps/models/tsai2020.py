"""Tsai, Srivastava, Goh and Salakhutdinov, *Capsules with Inverted Dot-Product Attention Routing*, ICLR 2020.

Layer-normalized capsules without activations, all layers routed at the same time, and one linear map from the poses to
the logits (Tables 8 to 11); and the networks with dynamic and EM routing that it is compared with (Tables 4 to 7).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import nn

from torchcaps.backbones import ConvStem, tsai_resnet
from torchcaps.capsules import Pose
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.hinton2018 import MatrixCapsConfig, matrix_capsules
from torchcaps.models.sabour2017 import CapsNetConfig, capsnet
from torchcaps.models.specs import Conv, Dense, Primary, routing
from torchcaps.routing import resolve
from torchcaps.routing.concurrent import Mode


@dataclass(frozen=True)
class InvertedConfig:
    """``backbone`` is ``"simple"`` (one convolution of ``stem_channels``), ``"resnet"`` (starting with that many) or a
    module of your own. ``strides`` has one number for each convolutional capsule layer, ``hidden`` the capsules of
    dense layers before the classes. Ablations: A is ``normalize=False``, B ``mode="sequential"``, C
    ``activations=True``. Another ``routing`` routes layer by layer."""

    smallest: ClassVar[Smallest] = {"stem_channels": 8, "caps": 2}

    image_size: ImageSize = 32
    channels: int = 3
    classes: int = 10
    backbone: str | nn.Module = "simple"
    stem_channels: int = 256
    primary_kernel: int = 1
    primary_stride: int = 1
    caps: int = 32
    pose: Pose = (4, 4)
    strides: tuple[int, ...] = (2, 1)
    hidden: tuple[int, ...] = ()
    routing: str = "inverted_attention"
    num_iters: int = 2
    mode: Mode = "concurrent"
    normalize: bool = True
    activations: bool = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def _backbone(backbone: str | nn.Module, channels: int, stem_channels: int, growth: int = 2) -> nn.Module:
    """``growth`` is how many times more channels the ResNet ends with than it starts with."""
    if isinstance(backbone, nn.Module):
        return backbone
    if backbone == "simple":
        return ConvStem(channels, stem_channels, 3, stride=2, padding=1)
    if backbone == "resnet":
        return tsai_resnet(channels, width=stem_channels, out_channels=growth * stem_channels)
    raise ValueError(f"no backbone {backbone!r}; there are 'simple' and 'resnet', or give a module")


def inverted(config: InvertedConfig) -> CapsuleNet:
    kind = resolve(config.routing)
    together = kind.stepwise
    ablations = {"normalize": config.normalize, "activations": config.activations}
    options = {name: value for name, value in ablations.items() if kind.takes(name)} if together else {}
    ablated = config.activations or not config.normalize or config.mode != "concurrent"
    if ablated and options != ablations:
        raise ValueError(f"the ablations belong to inverted attention; got routing={config.routing!r}")
    layer_routing = routing(config.routing, config.num_iters, **options)
    primary = (
        ("kernel_size", config.primary_kernel),
        ("stride", config.primary_stride),
        ("scored", config.activations),
    )
    return CapsuleNet(
        image=config.input_shape,
        backbone=_backbone(config.backbone, config.channels, config.stem_channels),
        primary=Primary("layer_norm", config.caps, config.pose, primary),
        layers=[
            *(Conv(config.caps, config.pose, 3, stride, layer_routing) for stride in config.strides),
            *(Dense(capsules, config.pose, layer_routing) for capsules in (*config.hidden, config.classes)),
        ],
        head=kind.head,
        num_iters=config.num_iters if together else None,
        mode=config.mode,
    )


@dataclass(frozen=True)
class DynamicOpponentConfig(CapsNetConfig):
    """Tables 4 and 5: CapsNet without its decoder. With ``backbone="resnet"``, which ends with 256 channels here as the
    convolution does that it replaces, the primary capsules on it have stride 1."""

    image_size: ImageSize = 32
    channels: int = 3
    decoder: bool = False
    backbone: Literal["simple", "resnet"] = "simple"


def dynamic_opponent(config: DynamicOpponentConfig) -> CapsuleNet:
    if config.backbone == "simple":
        return capsnet(config)
    trunk = _backbone(config.backbone, config.channels, config.stem_channels, growth=4)
    return capsnet(config, trunk, primary_stride=1)


@dataclass(frozen=True)
class EMOpponentConfig(MatrixCapsConfig):
    """Tables 6 and 7: matrix capsules on a convolution with batch norm, or on the ResNet backbone."""

    channels: int = 3
    classes: int = 10
    stem_channels: int = 256
    stem_kernel: int = 4
    stem_padding: int = 1
    stem_norm: bool = True
    num_iters: int = 2
    backbone: Literal["simple", "resnet"] = "simple"


def em_opponent(config: EMOpponentConfig) -> CapsuleNet:
    if config.backbone == "simple":
        return matrix_capsules(config)
    return matrix_capsules(config, _backbone(config.backbone, config.channels, config.stem_channels))


CIFAR10 = InvertedConfig()
CIFAR100 = InvertedConfig(classes=100, stem_channels=128, pose=(6, 6), hidden=(20,))
DIVERSE = InvertedConfig(
    image_size=36,
    channels=1,
    stem_channels=1024,
    primary_kernel=3,
    primary_stride=2,
    caps=16,
    pose=(8, 8),
    strides=(1,),
)

MODELS: dict[str, ModelEntry] = {
    "tsai2020_cifar10": ModelEntry("CIFAR-10, simple backbone (Table 8)", inverted, CIFAR10, "0.56 M"),
    "tsai2020_cifar10_resnet": ModelEntry(
        "CIFAR-10, ResNet backbone", inverted, replace(CIFAR10, backbone="resnet", stem_channels=64), "1.83 M"
    ),
    "tsai2020_cifar100": ModelEntry("CIFAR-100, simple backbone (Table 9)", inverted, CIFAR100, "1.46 M"),
    "tsai2020_cifar100_resnet": ModelEntry(
        "CIFAR-100, ResNet backbone", inverted, replace(CIFAR100, backbone="resnet", stem_channels=64), "2.80 M"
    ),
    "tsai2020_diverse_multimnist": ModelEntry("DiverseMultiMNIST, matrix poses (Table 10)", inverted, DIVERSE),
    "tsai2020_diverse_multimnist_vector": ModelEntry(
        "DiverseMultiMNIST, vector poses (Table 11)", inverted, replace(DIVERSE, pose=64)
    ),
    "tsai2020_cifar10_dynamic": ModelEntry(
        "dynamic routing, simple backbone (Table 4)", dynamic_opponent, DynamicOpponentConfig(), "7.99 M"
    ),
    "tsai2020_cifar100_dynamic": ModelEntry(
        "dynamic routing, simple backbone (Table 5)", dynamic_opponent, DynamicOpponentConfig(classes=100), "31.59 M"
    ),
    "tsai2020_cifar10_resnet_dynamic": ModelEntry(
        "dynamic routing, ResNet backbone",
        dynamic_opponent,
        DynamicOpponentConfig(backbone="resnet", stem_channels=64),
        "12.45 M",
    ),
    "tsai2020_cifar100_resnet_dynamic": ModelEntry(
        "dynamic routing, ResNet backbone",
        dynamic_opponent,
        DynamicOpponentConfig(backbone="resnet", stem_channels=64, classes=100),
        "36.04 M",
    ),
    "tsai2020_cifar10_em": ModelEntry(
        "EM routing, simple backbone (Table 6)", em_opponent, EMOpponentConfig(), "0.45 M"
    ),
    "tsai2020_cifar100_em": ModelEntry(
        "EM routing, simple backbone (Table 7)", em_opponent, EMOpponentConfig(classes=100), "0.50 M"
    ),
    "tsai2020_cifar10_resnet_em": ModelEntry(
        "EM routing, ResNet backbone", em_opponent, EMOpponentConfig(backbone="resnet", stem_channels=64), "1.71 M"
    ),
    "tsai2020_cifar100_resnet_em": ModelEntry(
        "EM routing, ResNet backbone",
        em_opponent,
        EMOpponentConfig(backbone="resnet", stem_channels=64, classes=100),
        "1.76 M",
    ),
}
