"""What every model is and what it returns."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules


class Prediction(NamedTuple):
    """What a model says about its input: a logit for each class, the class capsules (``None`` from networks without
    capsules), and an image if one was asked for."""

    logits: Float[Tensor, "b k"]
    capsules: Capsules | None = None
    drawn: Float[Tensor, "b ..."] | None = None


@dataclass(frozen=True)
class Origin:
    """Where a model comes from: its name in the registry and its whole configuration."""

    name: str
    config: Any


class Model(nn.Module):
    """Inputs to a ``Prediction``. ``image`` is the shape of one input that it was built for; ``origin`` is there if the
    registry made it."""

    image: tuple[int, ...]
    origin: Origin | None = None
