"""What the training loop eats: batches of model inputs with their targets, asked for by the numbers of the examples.

A feed is made from a dataset and a recipe's preparation. With a generator it prepares for training, random crops and
mixup drawn from it; without one it prepares for evaluation, and the same indices give the same batch.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Generator, Tensor


class Fed(NamedTuple):
    """One batch, ready for a model and its loss."""

    inputs: tuple[Tensor, ...]  # what the model is called with
    target: Int[Tensor, "n"] | Float[Tensor, "n k"]  # for the loss: mixed where inputs are mixed
    label: Int[Tensor, "n"] | Float[Tensor, "n k"]  # the truth, before mixing
    image: Float[Tensor, "n ..."] | None = None  # what a decoder should draw, if there is such a thing


@runtime_checkable
class Feed(Protocol):
    """Numbered examples as batches for a model."""

    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> Fed: ...
