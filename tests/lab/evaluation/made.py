"""A model and loaders that take no training: the input of an example is its logits."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from torchcaps.lab.loaders import ModelBatch
from torchcaps.models import Model, Prediction


class Given(Model):
    """Gives back its input, times a weight of one, as the logits."""

    image = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Prediction:
        return Prediction(inputs * self.weight)


class Rows:
    """A loader of rows, each with its label."""

    def __init__(self, rows: Float[Tensor, "n k"], label: Int[Tensor, "n"] | Float[Tensor, "n k"]) -> None:
        self.rows, self.label = rows, label
        self.classes = tuple("abcdefgh"[: rows.shape[1]])
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch:
        assert generator is None, "evaluation is not random"
        self.asked += indices.tolist()
        return ModelBatch((self.rows[indices],), self.label[indices], self.label[indices])


class Crops(Rows):
    """Several views of the same examples."""

    def __init__(self, each: list[Rows]) -> None:
        super().__init__(each[0].rows, each[0].label)
        self.each = each

    def views(self, indices: Int[Tensor, "n"]) -> list[ModelBatch]:
        return [crop.batch(indices) for crop in self.each]


def rows(count: int, classes: int = 4, seed: int = 0) -> Float[Tensor, "n k"]:
    return 2 * torch.randn(count, classes, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int = 4, seed: int = 1) -> Int[Tensor, "n"]:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))
