"""A controlled comparison of all routings: the same backbone, primary capsules and votes, whatever routes them.

No paper has this network. A few convolutions, primary capsules with poses and scores, and class capsules whose weights
belong to types of children, so that what a routing adds of its own (Heinsen's biases and β, EM's β, inverted
attention's norm and head) is a small part of all parameters. Poses are multiplied by the presence of their capsule, so
that routings which read no scores know of it as well.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.backbones import ConvStem
from torchcaps.capsules import Capsules, Pose
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet
from torchcaps.models.specs import Class, Given, routing
from torchcaps.primary import MatrixPrimaryCapsules
from torchcaps.routing import resolve


@dataclass(frozen=True)
class ComparisonConfig:
    """``widths`` are the channels of the 3×3 convolutions, of which the first two halve the image; ``caps`` are the
    capsules of each place. ``num_iters`` is for routings that iterate."""

    smallest: ClassVar[Smallest] = {"widths": (4, 4), "caps": 2}

    image_size: ImageSize = 28
    channels: int = 1
    classes: int = 10
    widths: tuple[int, ...] = (32, 64, 64, 64)
    caps: int = 8
    pose: Pose = (4, 4)
    routing: str = "dynamic"
    num_iters: int = 3

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


class PresentPrimaryCapsules(MatrixPrimaryCapsules):
    """Hinton's primary capsules, each pose as large as its capsule is present."""

    def forward(self, features: Float[Tensor, "b channel row column"]) -> Capsules:
        capsules = super().forward(features)
        return Capsules(capsules.pose * capsules.presence.unsqueeze(-1), capsules.score)


def controlled_comparison(config: ComparisonConfig) -> CapsuleNet:
    parts: list[nn.Module] = []
    channels = config.channels
    for number, width in enumerate(config.widths):
        parts.append(ConvStem(channels, width, 3, stride=2 if number < 2 else 1, padding=1, batch_norm=True))
        channels = width
    return CapsuleNet(
        image=config.input_shape,
        backbone=nn.Sequential(*parts),
        primary=Given(PresentPrimaryCapsules(channels, config.caps, config.pose), config.pose),
        layers=[Class(config.classes, config.pose, routing(config.routing, config.num_iters))],
        head=resolve(config.routing).head,
    )


DYNAMIC = ComparisonConfig()

MODELS: dict[str, ModelEntry] = {
    "comparison": ModelEntry("a controlled comparison of all routings (no paper's)", controlled_comparison, DYNAMIC),
    "comparison_smallnorb": ModelEntry(
        "the same for stereo pairs", controlled_comparison, replace(DYNAMIC, image_size=32, channels=2, classes=5)
    ),
}
