"""Mazzia, Salvetti and Chiaberge, *Efficient-CapsNet: Capsule Network with Self-Attention Routing*, 2021.

Four convolutions, each with its norm after the activation; a depthwise convolution as large as the map, which leaves 16
primary capsules; class capsules by self-attention. A decoder beside them in training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from torchcaps.backbones import ConvStack
from torchcaps.backbones.convolutions import Norm
from torchcaps.decoders import Decoder, FullyConnectedDecoder, UpsamplingDecoder
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Dense, Primary, routing, squash_option
from torchcaps.routing import resolve

DECODERS: dict[str, Callable[..., Decoder]] = {"dense": FullyConnectedDecoder, "upsampling": UpsamplingDecoder}


@dataclass(frozen=True)
class EfficientConfig:
    """Efficient-CapsNet, as for MNIST. ``norm_range`` is where scales and shifts of the norms start, as in
    ``ConvStack``. ``squash`` is the squash of the primary capsules, ``class_squash`` that of the class capsules
    (``torchcaps.squashing.SQUASHES``); left out, it is the one that the routing's paper has. Any routing can take the
    place of self-attention; ``num_iters`` is for those that iterate."""

    smallest: ClassVar[Smallest] = {"widths": (4, 4, 4, 8), "primary_pose": 4, "decoder_widths": (8, 8, 8)}

    image_size: ImageSize = 28
    channels: int = 1
    classes: int = 10
    widths: tuple[int, int, int, int] = (32, 64, 64, 128)
    kernel_sizes: tuple[int, int, int, int] = (5, 3, 3, 3)
    strides: tuple[int, int, int, int] = (1, 1, 1, 2)
    negative_slope: float = 0.0
    norm: Norm = "batch"
    norm_range: float | None = None
    primary_pose: int = 8
    class_pose: int = 16
    routing: str = "self_attention"
    num_iters: int = 3
    squash: str = "exponential"
    class_squash: str | None = None
    decoder: bool = True
    decoder_kind: Literal["dense", "upsampling"] = "dense"
    decoder_widths: tuple[int, ...] = (512, 1024)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def efficient(config: EfficientConfig) -> CapsuleNet:
    """The network. Primary capsules see the whole map, whatever the size of the images."""
    if config.widths[-1] % config.primary_pose:
        raise ValueError(
            f"the last of widths={config.widths} is divided into poses of primary_pose={config.primary_pose} numbers; "
            f"give a multiple of it"
        )
    kernel = tuple(_shrink(side, config) for side in config.input_shape[1:])
    widths = {"hidden" if config.decoder_kind == "dense" else "widths": config.decoder_widths}
    options = squash_option(config.routing, config.class_squash)
    layers = list(zip(config.widths, config.kernel_sizes, config.strides, strict=True))
    return CapsuleNet(
        image=config.input_shape,
        backbone=ConvStack(
            config.channels,
            layers,
            norm=config.norm,
            negative_slope=config.negative_slope,
            eps=1e-3,
            momentum=0.01,
            norm_range=config.norm_range,
        ),
        primary=Primary(
            "depthwise",
            config.widths[-1] // config.primary_pose,
            config.primary_pose,
            (("kernel_size", kernel), ("squash", config.squash)),
        ),
        layers=[Dense(config.classes, config.class_pose, routing(config.routing, config.num_iters, **options))],
        head=resolve(config.routing).head,
        decoder=partial(DECODERS[config.decoder_kind], **widths) if config.decoder else None,
    )


def _shrink(side: int, config: EfficientConfig) -> int:
    """What the convolutions leave of a side."""
    left = side
    for kernel_size, stride in zip(config.kernel_sizes, config.strides, strict=True):
        left = (left - kernel_size) // stride + 1
    if left < 1:
        raise ValueError(f"the convolutions leave nothing of images of {side} pixels; give larger ones")
    return left


DECODER = "the figure leaves the decoder out, which is for training alone: without it ours are {:,}"

MODELS: dict[str, ModelEntry] = {
    "efficient2021_mnist": ModelEntry(
        "Efficient-CapsNet for MNIST", efficient, EfficientConfig(), "161 K", DECODER.format(161_824)
    ),
    "efficient2021_smallnorb": ModelEntry(
        "Efficient-CapsNet for smallNORB, 48×48 crops",
        efficient,
        EfficientConfig(
            image_size=48,
            channels=2,
            classes=5,
            kernel_sizes=(7, 3, 3, 3),
            strides=(2, 1, 1, 2),
            negative_slope=0.3,
            norm="instance",
            norm_range=0.05,
            decoder_kind="upsampling",
            decoder_widths=(64, 128, 128),
        ),
        "151 K",
        DECODER.format(151_664),
    ),
}
