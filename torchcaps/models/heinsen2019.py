"""Heinsen, *An Algorithm for Routing Capsules in All Domains*, 2019.

Two networks with the same two layers of his routing on top, the first of which takes any number of children: one for
pairs of images of any size (Fig. 3), one for the hidden states of a language model (Fig. 5).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.backbones import CoordinateGrid, SwishStack
from torchcaps.capsules import Capsules
from torchcaps.models.base import ImageSize, ModelEntry, Smallest, image_shape
from torchcaps.models.capsule_net import CapsuleNet, Mask
from torchcaps.models.specs import Dense, Given, Primary, routing

Embeddings = Float[Tensor, "b token depth embedding"]


@dataclass(frozen=True)
class VisionConfig:
    """The smallNORB network. Images may differ in size from ``image_size``, from one batch to the next too."""

    smallest: ClassVar[Smallest] = {"stem_channels": 8, "caps": 4}

    image_size: ImageSize = 96
    channels: int = 2
    classes: int = 5
    stem_channels: int = 64
    stem_depth: int = 6
    caps: int = 64
    pose: tuple[int, int] = (4, 4)
    num_iters: int = 3
    model: Literal["gaussian", "kmeans"] = "gaussian"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return image_shape(self.channels, self.image_size)


def vision(config: VisionConfig) -> CapsuleNet:
    heinsen = routing("heinsen", config.num_iters, model=config.model)
    stack = SwishStack(config.channels + 2, config.stem_channels, depth=config.stem_depth)
    return CapsuleNet(
        image=config.input_shape,
        backbone=nn.Sequential(CoordinateGrid(), stack),
        primary=Primary("normalized_score", config.caps, config.pose),
        layers=[
            Dense(config.caps, config.pose, heinsen, shared=True),
            Dense(config.classes, config.pose, heinsen),
        ],
        type_first=True,
    )


class DepthEmbedding(nn.Module):
    """Adds to every hidden state a vector that says from which layer of the language model it comes."""

    def __init__(self, depth: int, embedding: int) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(depth, embedding))

    def forward(self, states: Embeddings) -> Embeddings:
        return states + self.offset


class TokenCapsules(nn.Module):
    """One capsule for each token and layer: a linear map, Swish, layer norm.

    ``mask`` tells tokens from padding, whose capsules are absent: true and false, or shares from 0 to 1 where sentences
    are mixed.
    """

    def __init__(self, embedding: int, pose: int) -> None:
        super().__init__()
        linear = nn.Linear(embedding, pose)
        nn.init.kaiming_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.detect = nn.Sequential(linear, nn.SiLU(), nn.LayerNorm(pose))

    def forward(self, states: Embeddings, mask: Mask | None = None) -> Capsules:
        pose = rearrange(self.detect(states), "b token depth d -> b (token depth) d")
        if mask is None:
            return Capsules(pose)
        if mask.shape != states.shape[:2]:
            raise ValueError(
                f"a mask of shape {tuple(mask.shape)} for states of shape {tuple(states.shape)}; expected "
                f"{tuple(states.shape[:2])}, true (or 1) for tokens and false (or 0) for padding"
            )
        # +∞ for what is surely there, -∞ for what is not; outside of 0 to 1 a logit is not a number.
        score = mask.to(pose.dtype).clamp(0.0, 1.0).logit()
        return Capsules(pose, repeat(score, "b token -> b (token depth)", depth=states.shape[2]))


@dataclass(frozen=True)
class SentenceConfig:
    """The SST network, for the ``depth`` hidden states of each token; sentences may have any number of tokens
    (``tokens`` is an example)."""

    smallest: ClassVar[Smallest] = {"features": 8, "caps": 4}

    classes: int = 5
    depth: int = 37
    embedding: int = 1280
    features: int = 64
    caps: int = 64
    pose: int = 2
    tokens: int = 25
    num_iters: int = 3
    model: Literal["gaussian", "kmeans"] = "gaussian"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.tokens, self.depth, self.embedding)


def sentence(config: SentenceConfig) -> CapsuleNet:
    heinsen = routing("heinsen", config.num_iters, model=config.model)
    return CapsuleNet(
        image=config.input_shape,
        backbone=DepthEmbedding(config.depth, config.embedding),
        primary=Given(TokenCapsules(config.embedding, config.features), config.features),
        layers=[
            Dense(config.caps, config.pose, heinsen, shared=True),
            Dense(config.classes, config.pose, heinsen),
        ],
    )


MODELS: dict[str, ModelEntry] = {
    "heinsen2019_smallnorb": ModelEntry("pairs of images of any size", vision, VisionConfig(), "272 K"),
    "heinsen2019_sst5": ModelEntry("hidden states of GPT-2 large, 5 sentiments", sentence, SentenceConfig(), "140 K"),
    "heinsen2019_sst2": ModelEntry(
        "hidden states of GPT-2 large, 2 sentiments",
        sentence,
        SentenceConfig(classes=2),
        "140 K",
        "the paper's figure is for both networks together; three classes less are 1,536 parameters less",
    ),
}
