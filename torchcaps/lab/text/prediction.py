"""What a trained network makes of a text that someone just wrote."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from torchcaps.lab.recipes import AnyRecipe, build_loss
from torchcaps.lab.text.cache import Say
from torchcaps.lab.text.loader import OnTheFly
from torchcaps.lab.text.tasks import is_text, shared_encoder
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss
from torchcaps.models import Model
from torchcaps.models.base import device_of

BATCH = 32


@runtime_checkable
class TrainedRun(Protocol):
    """What is needed of a run folder."""

    @property
    def recipe(self) -> AnyRecipe: ...

    def model(self) -> Model: ...


class Predicted(NamedTuple):
    """A text, the class it was put in, and the probability of every class."""

    text: str
    label: str
    probability: dict[str, float]


def predict(run: TrainedRun, texts: Sequence[str], say: Say = print) -> list[Predicted]:
    """The classes of texts, by the model of a run."""
    recipe = run.recipe
    if not is_text(recipe):
        raise ValueError(f"{recipe.name} was trained on images, not on texts; give it image files")
    return predict_with(run.model(), recipe, texts, say)


@torch.no_grad()
def predict_with(model: Model, recipe: AnyRecipe, texts: Sequence[str], say: Say = print) -> list[Predicted]:
    """The classes of texts, by a model and the recipe that says which encoder it was trained with."""
    texts = list(texts)
    if not texts:
        raise ValueError("no text to predict; give at least one")
    states = OnTheFly(shared_encoder(recipe.text.encoder), texts, say)
    names = class_names(recipe)
    loss = build_loss(recipe)
    found: list[Predicted] = []
    model.eval()
    for part in torch.arange(len(texts)).split(BATCH):
        given = [tensor.to(device_of(model)) for tensor in states.batch(part)]
        for index, row in zip(part.tolist(), _probability(loss, model(*given).logits), strict=True):
            shares = dict(zip(names, row.tolist(), strict=True))
            found.append(Predicted(texts[index], max(shares, key=shares.__getitem__), shares))
    return found


def class_names(recipe: AnyRecipe) -> tuple[str, ...]:
    """As the training data named them; by number if the recipe does not know."""
    return recipe.text.classes or tuple(map(str, range(recipe.model.classes)))


def _probability(loss: ClassificationLoss, logits: torch.Tensor) -> torch.Tensor:
    """Softmax of what a cross-entropy was trained on; otherwise each class's own presence."""
    return logits.softmax(-1) if isinstance(loss, CrossEntropyLoss) else logits.sigmoid()
