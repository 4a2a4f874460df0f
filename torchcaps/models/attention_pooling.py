"""What a capsule head for hidden states is compared with: attention pooling, of the same size and on the same features.

Learned queries each take a weighted mean of all tokens and layers; a linear map reads the class logits off the means.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.models.base import Model, ModelEntry, Prediction, Smallest
from torchcaps.models.capsule_net import Mask
from torchcaps.models.heinsen2019 import DepthEmbedding, TokenCapsules


@dataclass(frozen=True)
class PoolingConfig:
    """Sizes as in Heinsen's SST network. On 7 layers of 384 numbers, 29 queries have 133 parameters more than his
    network for 5 classes, and 50 queries 130 more than the one for 2."""

    smallest: ClassVar[Smallest] = {"features": 8, "queries": 4}

    classes: int = 5
    depth: int = 7
    embedding: int = 384
    features: int = 64
    queries: int = 29
    tokens: int = 25

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.tokens, self.depth, self.embedding)


class AttentionPooling(Model):
    """Depth embedding, linear map, Swish and layer norm as in Heinsen's network; then attention in place of routing."""

    def __init__(self, config: PoolingConfig) -> None:
        super().__init__()
        self.image = config.input_shape
        self.accepts = (None, *self.image[1:])
        self.depth = DepthEmbedding(config.depth, config.embedding)
        self.features = TokenCapsules(config.embedding, config.features)
        self.queries = nn.Parameter(torch.empty(config.queries, config.features))
        nn.init.normal_(self.queries, std=config.features**-0.5)
        self.top = nn.Linear(config.queries * config.features, config.classes)

    def forward(self, inputs: Float[Tensor, "b token depth width"], mask: Mask | None = None) -> Prediction:
        if tuple(inputs.shape[2:]) != self.accepts[1:]:
            raise ValueError(
                f"this model takes batches of (any, {self.image[1]}, {self.image[2]}); got a batch of shape "
                f"{tuple(inputs.shape)}; create the model with the sizes of your inputs"
            )
        pose = self.features(self.depth(inputs)).pose
        logits = pose @ self.queries.mT  # b i query
        if mask is not None:
            # Shares of mixed sentences weigh the softmax, as presence weighs the votes of a capsule.
            share = repeat(mask.to(pose.dtype), "b token -> b (token depth) 1", depth=inputs.shape[2])
            logits = logits + share.log()
        pooled = logits.softmax(1).mT @ pose  # b query d
        return Prediction(self.top(rearrange(pooled, "b q d -> b (q d)")))


MODELS: dict[str, ModelEntry] = {
    "attention_pooling": ModelEntry(
        "hidden states of any encoder, without capsules", AttentionPooling, PoolingConfig()
    ),
}
