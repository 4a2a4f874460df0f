"""The default: a small CapsNet on the digits that ship with the package, for a first look in a few minutes."""

from collections.abc import Callable
from dataclasses import replace

from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.fitting import at
from torchcaps.models.sabour2017 import CapsNetConfig


def quickstart(scale: Scale = "paper") -> AnyRecipe:
    """The same at the scales ``paper`` and ``laptop``: it is no paper's, and was made for a laptop."""
    recipe = Recipe(
        name="quickstart",
        claim=Claim("no paper: our own aim", "accuracy", 97.5, "on the 1,000 test images of the sample"),
        model_name="sabour2017_mnist",
        model=CapsNetConfig(stem_channels=64, primary_caps=8),
        data=Data("mnist_sample", val_size=500),
        transforms=Transforms(pad=2, rotation=10.0),
        loss=Loss("margin", reconstruction=0.0005),
        optimizer=Optimizer("adam", lr=3e-3),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5),
        epochs=12.0,
        batch_size=50,
        cost="2 min on 2 cores",
    )
    return at(scale, recipe, {})


def small(scale: Scale = "paper") -> AnyRecipe:
    """The same with fewer channels and a smaller decoder, for longer: the model that ships with the package."""
    model = CapsNetConfig(stem_channels=48, primary_caps=8, decoder_widths=(128, 256))
    claim = Claim("no paper: our own aim", "accuracy", 97.5, "on the 1,000 test images of the sample")
    recipe = replace(
        quickstart(), name="quickstart-small", claim=claim, model=model, epochs=30.0, cost="5 min on 2 cores"
    )
    return at(scale, recipe, {})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {"quickstart": quickstart, "quickstart-small": small}
