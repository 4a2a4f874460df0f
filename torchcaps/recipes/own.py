"""For images and texts of one's own: ``torchcaps train own/images --data folder:PATH``, ``torchcaps train text --data
my.csv --text-column review --label-column stars``.

Channels and classes are taken from the data, images are resized to 32×32 (``--prepare.resize`` says otherwise), and
``--model.routing`` names any of the routings.
"""

from collections.abc import Callable

import torchcaps.models as models
from torchcaps.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Prepare, Recipe, Scale, Schedule, Text
from torchcaps.recipes.scaling import at


def images(scale: Scale = "paper") -> AnyRecipe:
    """A small residual network with one layer of capsules on it; at the scale ``laptop``, for fewer epochs."""
    recipe = Recipe(
        name="own/images",
        claim=Claim("your own data", "accuracy", None),
        model_name="zhao2020_cifar10",
        model=models.configure("zhao2020_cifar10", blocks=1, hidden=()),
        data=Data("folder:images"),
        prepare=Prepare(resize=32, pad=4),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("adam", lr=2e-3),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5),
        epochs=60.0,
        batch_size=32,
        cost="varies",
    )
    return at(scale, recipe, {"epochs": 15.0})


def text(scale: Scale = "paper") -> AnyRecipe:
    """Heinsen's network on the hidden states of a small language model, for a .csv, .tsv or .jsonl of texts and labels.

    One in five rows is kept for testing unless ``--data.test`` names another file; classes are taken from the labels.
    """
    recipe = Recipe(
        name="text",
        claim=Claim("your own data", "accuracy", None),
        model_name="heinsen2019_sst5",
        model=models.configure("heinsen2019_sst5", depth=7, embedding=384),
        data=Data("texts.csv"),
        text=Text("minilm"),
        prepare=Prepare(mixup=0.2),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("radam", lr=2e-3, momentum=0.9),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.81),
        epochs=10.0,
        batch_size=20,
        cost="minutes",
    )
    return at(scale, recipe, {"epochs": 5.0})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {"own/images": images, "text": text}
