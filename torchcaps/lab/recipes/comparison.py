"""The controlled comparison of all routings, which no paper has.

The same backbone, the same votes, the same loss and optimizer; ``--model.routing`` names what routes them. Parameters
differ by less than 2 %. No paper's regime is favored: softmax cross-entropy, Adam, a short warm-up and a cosine.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.fitting import at


class ComparisonData(NamedTuple):
    """Data with what belongs to them: how they are prepared, and how long a laptop learns from how many."""

    data: str
    model: str
    size: dict[str, int]
    transforms: Transforms
    limit: int | None
    epochs: float
    val_size: int = 0


DATASETS = {
    "mnist-sample": ComparisonData("mnist_sample", "comparison", {}, Transforms(pad=2), None, 8.0, val_size=500),
    "fashion-mnist": ComparisonData("fashion_mnist", "comparison", {}, Transforms(pad=2), 20_000, 2.0),
    "cifar10": ComparisonData(
        "cifar10", "comparison", {"image_size": 32, "channels": 3}, Transforms(pad=4, flip=True), 20_000, 2.0
    ),
    "toys": ComparisonData("toys", "comparison_smallnorb", {}, Transforms(resize=48, crop=32), 10_000, 4.0),
}


def compare_routings(name: str, scale: Scale = "paper") -> AnyRecipe:
    """One of the four datasets, with dynamic routing until told otherwise."""
    dataset = DATASETS[name]
    recipe = Recipe(
        name=f"comparison/{name}",
        claim=Claim("no paper: a controlled comparison", "accuracy", None),
        model_name=dataset.model,
        model=models.configure(dataset.model, **dataset.size),
        data=Data(dataset.data, val_size=dataset.val_size),
        transforms=dataset.transforms,
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("adam", lr=3e-3),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5),
        epochs=30.0,
        batch_size=64,
        cost="an hour on 2 cores",
    )
    return at(scale, recipe, {"data.limit": dataset.limit, "epochs": dataset.epochs, "cost": "2 min on 2 cores"})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    f"comparison/{name}": partial(compare_routings, name) for name in DATASETS
}
