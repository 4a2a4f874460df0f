"""The networks without capsules that the papers compare theirs with.

Sabour et al. 2017 (§5 and §6.2), Tsai et al. 2020 (Tables 2, 3 and 12), and ResNet-18 (He et al. 2016) for images of
32×32. They return logits alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from torchcaps.backbones import resnet18_trunk
from torchcaps.convolution import Conv2d
from torchcaps.models.base import ImageSize, Model, ModelEntry, Prediction, Smallest, image_shape


class PlainNet(Model):
    """Convolutions, then fully connected layers: the capsule networks' counterpart."""

    def __init__(self, image: tuple[int, ...], trunk: nn.Module, top: Sequence[nn.Module]) -> None:
        super().__init__()
        self.image = image
        self.trunk = trunk
        self.top = nn.Sequential(*top)

    def forward(self, images: Tensor) -> Prediction:
        if tuple(images.shape[1:]) != self.image:
            raise ValueError(
                f"this model takes batches of {self.image}; got a batch of shape {tuple(images.shape)}; create the "
                f"model with the sizes of your inputs"
            )
        return Prediction(self.top(self.trunk(images)))


def _features(trunk: nn.Module, image: tuple[int, ...]) -> torch.Size:
    """The shape of one image's features."""
    training = trunk.training
    trunk.eval()
    try:
        with torch.no_grad():
            return trunk(torch.zeros(1, *image)).shape[1:]
    except RuntimeError as error:
        raise ValueError(f"images of {image} do not fit the network: {error}") from error
    finally:
        trunk.train(training)


@dataclass(frozen=True)
class SabourMNISTConfig:
    """Three convolutions, two fully connected layers, dropout, softmax. Only with padding that keeps the size do the
    parameters come to the paper's 35.4 M."""

    smallest: ClassVar[Smallest] = {"widths": (8, 8, 8), "hidden": (16, 16)}

    image_size: ImageSize = 28
    channels: int = 1
    classes: int = 10
    widths: tuple[int, int, int] = (256, 256, 128)
    hidden: tuple[int, int] = (328, 192)
    dropout: float = 0.5

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def sabour_mnist(config: SabourMNISTConfig) -> PlainNet:
    parts: list[nn.Module] = []
    channels = config.channels
    for width in config.widths:
        parts += [Conv2d(channels, width, 5, padding=2), nn.ReLU()]
        channels = width
    trunk = nn.Sequential(*parts)
    first, second = config.hidden
    top = [
        nn.Flatten(),
        nn.Linear(_features(trunk, config.input_shape).numel(), first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Dropout(config.dropout),
        nn.Linear(second, config.classes),
    ]
    return PlainNet(config.input_shape, trunk, top)


@dataclass(frozen=True)
class SabourMultiMNISTConfig:
    """Two convolutions with pooling, one fully connected layer, sigmoids; padding keeps the sizes (24.56 M). Not the
    paper's: ``norm`` puts batch norm after each convolution."""

    smallest: ClassVar[Smallest] = {"widths": (8, 8), "hidden": 16}

    image_size: ImageSize = 36
    channels: int = 1
    classes: int = 10
    widths: tuple[int, int] = (512, 256)
    hidden: int = 1024
    norm: bool = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def sabour_multimnist(config: SabourMultiMNISTConfig) -> PlainNet:
    first, second = config.widths
    norms = [[nn.BatchNorm2d(width)] if config.norm else [] for width in config.widths]
    trunk = nn.Sequential(
        Conv2d(config.channels, first, 9, padding=4),
        *norms[0],
        nn.ReLU(),
        nn.MaxPool2d(2),
        Conv2d(first, second, 5, padding=2),
        *norms[1],
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    features = _features(trunk, config.input_shape).numel()
    top = [nn.Flatten(), nn.Linear(features, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.classes)]
    return PlainNet(config.input_shape, trunk, top)


@dataclass(frozen=True)
class TsaiCIFARConfig:
    """Tables 2 and 3: three convolutions of stride 2, pooling after the second and third."""

    smallest: ClassVar[Smallest] = {"width": 8}

    image_size: ImageSize = 32
    channels: int = 3
    classes: int = 10
    width: int = 1024

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def _activate(channels: int, width: int, stride: int, padding: int) -> list[nn.Module]:
    """A convolution, ReLU and batch norm, in the order of the tables."""
    return [Conv2d(channels, width, 3, stride, padding), nn.ReLU(), nn.BatchNorm2d(width)]


def tsai_cifar(config: TsaiCIFARConfig) -> PlainNet:
    width = config.width
    trunk = nn.Sequential(
        nn.Conv2d(config.channels, width, 3, 2, 1),
        nn.ReLU(),
        *_activate(width, width, 2, 1),
        nn.AvgPool2d(2),
        *_activate(width, width, 2, 1),
        nn.AvgPool2d(2),
    )
    features = _features(trunk, config.input_shape).numel()
    return PlainNet(config.input_shape, trunk, [nn.Flatten(), nn.Linear(features, config.classes)])


@dataclass(frozen=True)
class TsaiDiverseConfig:
    """Table 12; ``pooling="learned"`` replaces the average over positions by weights for each of them (§6)."""

    smallest: ClassVar[Smallest] = {"width": 8, "hidden": 16}

    image_size: ImageSize = 36
    channels: int = 1
    classes: int = 10
    width: int = 1024
    hidden: int = 640
    pooling: Literal["average", "learned"] = "average"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def tsai_diverse(config: TsaiDiverseConfig) -> PlainNet:
    width, hidden = config.width, config.hidden
    trunk = nn.Sequential(
        nn.Conv2d(config.channels, width, 3, 2, 1),
        nn.ReLU(),
        *_activate(width, width, 2, 0),
        *_activate(width, width, 1, 0),
    )
    features = _features(trunk, config.input_shape)
    if config.pooling == "learned":
        top: list[nn.Module] = [nn.Flatten(), nn.Linear(features.numel(), hidden)]
    elif config.pooling == "average":
        top = [nn.Conv2d(width, hidden, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    else:
        raise ValueError(f"no pooling {config.pooling!r}; there are 'average' and 'learned'")
    return PlainNet(config.input_shape, trunk, [*top, nn.Linear(hidden, config.classes)])


@dataclass(frozen=True)
class ResNet18Config:
    """ResNet-18 whose first convolution is 3×3 without pooling, for small images."""

    smallest: ClassVar[Smallest] = {"width": 8}

    image_size: ImageSize = 32
    channels: int = 3
    classes: int = 10
    width: int = 64

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def resnet18(config: ResNet18Config) -> PlainNet:
    top = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * config.width, config.classes)]
    return PlainNet(config.input_shape, resnet18_trunk(config.channels, width=config.width), top)


DIVERSE = TsaiDiverseConfig()

MODELS: dict[str, ModelEntry] = {
    "cnn_sabour2017_mnist": ModelEntry("the baseline for MNIST", sabour_mnist, SabourMNISTConfig(), "35.4 M"),
    "cnn_sabour2017_multimnist": ModelEntry(
        "the baseline for MultiMNIST", sabour_multimnist, SabourMultiMNISTConfig(), "24.56 M"
    ),
    "cnn_tsai2020_cifar10": ModelEntry("the baseline for CIFAR-10 (Table 2)", tsai_cifar, TsaiCIFARConfig(), "18.92 M"),
    "cnn_tsai2020_cifar100": ModelEntry(
        "the baseline for CIFAR-100 (Table 3)", tsai_cifar, TsaiCIFARConfig(classes=100), "19.01 M"
    ),
    "cnn_tsai2020_diverse_multimnist": ModelEntry(
        "the baseline for DiverseMultiMNIST (Table 12)", tsai_diverse, DIVERSE
    ),
    "cnn_tsai2020_diverse_multimnist_learned": ModelEntry(
        "the same with learned pooling (§6)", tsai_diverse, replace(DIVERSE, pooling="learned"), "42.49 M"
    ),
    "resnet18": ModelEntry("ResNet-18 for 32×32", resnet18, ResNet18Config(), "11.17 M"),
    "resnet18_cifar100": ModelEntry(
        "ResNet-18 for 32×32, 100 classes", resnet18, ResNet18Config(classes=100), "11.22 M"
    ),
}
