"""Heinsen, *An Algorithm for Routing Vectors in Sequences*, 2022: heads on the hidden states of a frozen network.

All hidden states, of every token (or patch) at every layer, become one sequence of vectors: normalized, scaled and
shifted for each layer. Three vector routings take it to the classes. Texts and images have the same head.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.heads import VectorRoutingHead
from torchcaps.models.base import Model, ModelEntry, Prediction, Smallest
from torchcaps.models.capsule_net import Mask
from torchcaps.models.heinsen2019 import DepthEmbedding, TokenCapsules
from torchcaps.models.timm_backbones import find_backbone

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


class FrozenRouting(Model):
    """Images to classes: a frozen network of any kind, and the head of Heinsen 2022 on its hidden states.

    The network is never trained: it has no gradients and always runs as in evaluation.

    Args:
        backbone: any module that returns a feature map, a sequence of vectors, a list of either of one shape (its
            layers), or an object with ``hidden_states`` as those of Hugging Face have; or ``"timm:NAME"``.
        classes: number of classes, at least 2.
        image: shape ``(channel, row, column)`` of the images to build for.
        features: numbers to which hidden states are reduced first; none if left out, as in the paper.
        caps: parts, of either layer.
        pose: numbers in a part; as many as in a hidden state if left out.
        num_iters: iterations of each routing.

    Shape:
        - images: ``(b, channel, row, column)``.

    Returns:
        A ``Prediction`` with logits.

    Example:
        >>> net = FrozenRouting(nn.Conv2d(3, 8, 5, stride=4), 10, image=(3, 32, 32), caps=4)
        >>> net(torch.zeros(2, 3, 32, 32)).logits.shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        backbone: nn.Module | str,
        classes: int,
        *,
        image: tuple[int, int, int] = (3, 224, 224),
        features: int | None = None,
        caps: int = 64,
        pose: int | None = None,
        num_iters: int = 2,
    ) -> None:
        super().__init__()
        self.image = tuple(image)
        self.backbone = find_backbone(backbone, image[0]).requires_grad_(False).eval()
        parameter = next(self.backbone.parameters(), torch.zeros(()))
        _, tokens, depth, width = self.hidden_states(parameter.new_zeros(1, *image)).shape
        self.routing = StatesRouting(StatesConfig(classes, depth, width, features, caps, pose, tokens, num_iters))

    def train(self, mode: bool = True) -> "FrozenRouting":
        """Train the head; the backbone stays as in evaluation.

        Args:
            mode: whether to train.

        Returns:
            The model itself.
        """
        super().train(mode)
        self.backbone.eval()
        return self

    def hidden_states(self, images: Float[Tensor, "b channel row column"]) -> States:
        """The frozen network's vectors of every place at every layer.

        Args:
            images: a batch of images.

        Returns:
            The hidden states.
        """
        with torch.no_grad():
            return stack_states(self.backbone(images))

    def forward(self, inputs: Float[Tensor, "b channel row column"]) -> Prediction:
        return self.routing(self.hidden_states(inputs))

    def credit(self, inputs: Float[Tensor, "b channel row column"]) -> Float[Tensor, "b token depth k"]:
        """What each class credits each place with, at each layer, through all routings.

        Args:
            inputs: a batch of images.

        Returns:
            The credit: above 0 for the class, below 0 against it.
        """
        return self.routing.credit(self.hidden_states(inputs))


def stack_states(returned: Any) -> States:
    """What a network returned as the vectors of every place at every layer."""
    found = getattr(returned, "hidden_states", returned)
    layers = [found] if isinstance(found, Tensor) else list(found) if isinstance(found, list | tuple) else []
    shapes = {tuple(layer.shape) if isinstance(layer, Tensor) else type(layer).__name__ for layer in layers}
    if len(shapes) != 1 or not isinstance(layers[0], Tensor) or layers[0].ndim not in (3, 4):
        got = ", ".join(map(str, sorted(shapes, key=str))) or type(found).__name__
        raise ValueError(
            "a backbone for vector routing returns feature maps (b, channel, row, column) or sequences "
            f"(b, token, d), all of one shape; this one returned {got}"
        )
    if layers[0].ndim == 4:
        layers = [rearrange(layer, "b d y x -> b (y x) d") for layer in layers]
    return torch.stack(layers, 2)


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
