"""Heinsen, *An Algorithm for Routing Vectors in Sequences*, 2022: heads on the hidden states of a frozen network.

All hidden states, of every token (or patch) at every layer, become one sequence of vectors: normalized, scaled and
shifted for each layer. Three vector routings take it to the classes. Texts and images have the same head.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.heads import VectorRoutingHead
from torchcaps.models.base import Model, ModelEntry, Prediction, Smallest
from torchcaps.models.capsule_net import Mask
from torchcaps.models.heinsen2019 import DepthEmbedding, TokenCapsules

States = Float[Tensor, "b token depth embedding"]


@dataclass(frozen=True)
class StatesConfig:
    """The head for the ``depth`` hidden states of each token; sequences may have any length (``tokens`` is an example).

    ``features=None`` is the paper's: hidden states keep their width. A number puts the features of his 2019 network in
    their place (a linear map to so many numbers, Swish, layer norm), for heads of its size. ``pose=None`` are parts as
    wide as that.
    """

    smallest: ClassVar[Smallest] = {"caps": 4, "pose": 8}

    classes: int = 5
    depth: int = 25
    embedding: int = 1024
    features: int | None = None
    caps: int = 64
    pose: int | None = None
    tokens: int = 25
    num_iters: int = 2

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.tokens, self.depth, self.embedding)


class ScaledStates(nn.Module):
    """Every hidden state normalized, then scaled and shifted by numbers of its layer's own."""

    def __init__(self, depth: int, embedding: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(depth, embedding))
        self.shift = nn.Parameter(torch.zeros(depth, embedding))

    def forward(self, states: States) -> States:
        return F.layer_norm(states, states.shape[-1:]) * self.scale + self.shift


class NarrowStates(nn.Module):
    """The features of Heinsen's 2019 network: a depth embedding, a linear map, Swish, layer norm."""

    def __init__(self, depth: int, embedding: int, features: int) -> None:
        super().__init__()
        self.depth = DepthEmbedding(depth, embedding)
        self.detect = TokenCapsules(embedding, features).detect

    def forward(self, states: States) -> Float[Tensor, "b token depth feature"]:
        return self.detect(self.depth(states))


class StatesRouting(Model):
    """From hidden states to classes. ``credit`` says which token, at which layer, made each class."""

    def __init__(self, config: StatesConfig) -> None:
        super().__init__()
        self.image = config.input_shape
        self.accepts = (None, *self.image[1:])
        depth, width = config.depth, config.embedding
        narrow = config.features
        self.features = ScaledStates(depth, width) if narrow is None else NarrowStates(depth, width, narrow)
        self.head = VectorRoutingHead(
            narrow or width, config.classes, caps=config.caps, pose=config.pose, num_iters=config.num_iters
        )

    def forward(self, inputs: States, mask: Mask | None = None) -> Prediction:
        """Logits of a batch.

        Args:
            inputs: hidden states.
            mask: what of each sequence is there and what is padding.

        Returns:
            The logits.
        """
        return Prediction(self.head(*self._sequence(inputs, mask)))

    def credit(self, inputs: States, mask: Mask | None = None) -> Float[Tensor, "b token depth k"]:
        """What each class credits each token with, at each layer, through all routings.

        Args:
            inputs: hidden states.
            mask: what of each sequence is there and what is padding.

        Returns:
            The credit: above 0 for the class, below 0 against it, 0 for padding.
        """
        credit = self.head.credit(*self._sequence(inputs, mask))
        return rearrange(credit, "b (token depth) k -> b token depth k", depth=self.image[1])

    def _sequence(self, inputs: States, mask: Mask | None) -> tuple[Tensor, Tensor | None]:
        """One vector for each token and layer, and which of them are there."""
        if inputs.ndim != 4 or tuple(inputs.shape[2:]) != self.accepts[1:]:
            raise ValueError(
                f"this model takes batches of (any, {self.image[1]}, {self.image[2]}); got a batch of shape "
                f"{tuple(inputs.shape)}; create the model with the sizes of your inputs"
            )
        if mask is not None and mask.shape != inputs.shape[:2]:
            raise ValueError(
                f"a mask of shape {tuple(mask.shape)} for states of shape {tuple(inputs.shape)}; expected "
                f"{tuple(inputs.shape[:2])}, true (or 1) for tokens and false (or 0) for padding"
            )
        vectors = rearrange(self.features(inputs), "b token depth d -> b (token depth) d")
        return vectors, None if mask is None else repeat(mask, "b token -> b (token depth)", depth=inputs.shape[2])


PATCHES = 197  # of an image of 224×224 in squares of 16×16, and the class token
TEXT, IMAGE = StatesConfig(), StatesConfig(tokens=PATCHES)

MODELS: dict[str, ModelEntry] = {
    "heinsen2022_sst5": ModelEntry("hidden states of RoBERTa-large, 5 sentiments", StatesRouting, TEXT),
    "heinsen2022_sst2": ModelEntry(
        "hidden states of RoBERTa-large, 2 sentiments (also IMDB's)", StatesRouting, replace(TEXT, classes=2)
    ),
    "heinsen2022_cifar10": ModelEntry(
        "hidden states of BEiT-large, 10 classes", StatesRouting, replace(IMAGE, classes=10)
    ),
    "heinsen2022_cifar100": ModelEntry(
        "hidden states of BEiT-large, 100 classes", StatesRouting, replace(IMAGE, classes=100)
    ),
    "heinsen2022_imagenet": ModelEntry(
        "hidden states of BEiT-large, 1,000 classes", StatesRouting, replace(IMAGE, classes=1000)
    ),
}
