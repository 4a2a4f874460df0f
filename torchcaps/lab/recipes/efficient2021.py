"""Mazzia, Salvetti and Chiaberge, *Efficient-CapsNet: Capsule Network with Self-Attention Routing*, 2021.

The regime is that of the authors' code: Adam 0.0005 × 0.97 every epoch, not below 0.00005, a batch of 16, 150 epochs;
margin loss and 0.392 × the mean squared error of the reconstruction. There the test set chooses the weights that are
tested; here validation examples do (``--data.val-size``). The paper's figures are quoted from memory.
"""

from collections.abc import Callable

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.changes import Changes
from torchcaps.lab.recipes.fitting import SHORT, at

RECONSTRUCTION = 0.392  # of the mean squared error; recipes weight the sum
KEPT_FOR_VALIDATION = 2_000
LAPTOP: Changes = {**SHORT, "batch_size": 32, "optimizer.lr": 1e-3}


def _recipe(name: str, claim: Claim, data: Data, transforms: Transforms, steps: int, cost: str) -> AnyRecipe:
    model_name = f"efficient2021_{name}"
    config = models.entry(model_name).config
    channels, rows, columns = config.input_shape
    return Recipe(
        name=f"efficient2021/{name}",
        claim=claim,
        model_name=model_name,
        model=config,
        data=data,
        transforms=transforms,
        loss=Loss("margin", reconstruction=RECONSTRUCTION / (channels * rows * columns)),
        optimizer=Optimizer("adam", lr=5e-4, eps=1e-7),
        schedule=Schedule("exponential", factor=0.97, every=steps, smooth=False, floor=5e-5),
        epochs=150.0,
        batch_size=16,
        cost=cost,
    )


def mnist(scale: Scale = "paper") -> AnyRecipe:
    """Half of the digits rotated, all of them moved within their margins, squished, and a square of each erased."""
    recipe = _recipe(
        "mnist",
        Claim("Table 2", "error", 0.26, "figure from memory; an ensemble has 0.16"),
        Data("mnist", val_size=KEPT_FOR_VALIDATION),
        Transforms(rotation=30.0, rotation_share=0.5, shift_in_margins=True, squish=0.25, erase=4, amounts="normal"),
        steps=3_625,
        cost="hours on a GPU",
    )
    return at(scale, recipe, {**LAPTOP, "epochs": 3.0, "cost": "8 min on 2 cores"})


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    """Resized to 64×64, random crops of 48×48, the central one in testing; brightness and contrast."""
    # The authors' brightness is ±2 deviations of standardized images.
    recipe = _recipe(
        "smallnorb",
        Claim("Table 2", "error", 2.54, "figure from memory; an ensemble has 1.23"),
        Data("smallnorb", val_size=KEPT_FOR_VALIDATION),
        Transforms(resize=64, crop=48, brightness=2 * DEVIATION, contrast=0.5, mean=(MEAN,) * 2, std=(DEVIATION,) * 2),
        steps=1_394,
        cost="hours on a GPU",
    )
    laptop = {**LAPTOP, "data.train": "toys", "data.limit": 6_000, "data.test_limit": 3_000, "data.val_size": 0}
    return at(scale, recipe, {**laptop, "epochs": 4.0, "cost": "5 min on 2 cores"})


MEAN, DEVIATION = 0.75, 0.18  # of smallNORB's pixels, about

RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "efficient2021/mnist": mnist,
    "efficient2021/smallnorb": smallnorb,
}
