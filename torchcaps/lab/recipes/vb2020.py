"""Ribeiro, Leontidis and Kollias, *Capsule Routing via Variational Bayes*, AAAI 2020: smallNORB.

The regime is that of the authors' code: Adam 0.001, a batch of 128, 300 epochs, images resized to 48×48, crops of
32×32, each image standardized. The paper has an exponential decay of the learning rate without numbers, and the code
none: it is constant here. The figures are those of the authors' README, reached on the whole training set.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Transforms
from torchcaps.lab.recipes.fitting import SHORT, at


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    """Three layers of capsules."""
    recipe = Recipe(
        name="vb2020/smallnorb",
        claim=Claim("README, three layers", "accuracy", 98.7, "a user of the code reached 95.7"),
        model_name="vb2020_smallnorb",
        model=models.entry("vb2020_smallnorb").config,
        data=Data("smallnorb"),
        transforms=Transforms(resize=48, crop=32, standardize=True),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("adam", lr=1e-3),
        epochs=300.0,
        batch_size=128,
        cost="a day on a GPU",
    )
    laptop = {"data.train": "toys", "data.limit": 6_000, "data.test_limit": 3_000, **SHORT, "batch_size": 32}
    laptop |= {"model.caps": (8, 8), "epochs": 4.0, "optimizer.lr": 3e-3, "cost": "10 min on 2 cores"}
    return at(scale, recipe, laptop)


def smallnorb_tiny(scale: Scale = "paper") -> AnyRecipe:
    """One layer of capsules."""
    recipe = replace(
        smallnorb(),
        name="vb2020/smallnorb-tiny",
        claim=Claim("README, tiny", "accuracy", 97.1),
        model_name="vb2020_smallnorb_tiny",
        model=models.entry("vb2020_smallnorb_tiny").config,
        cost="hours on a GPU",
    )
    laptop = {"data.train": "toys", "data.limit": 6_000, "data.test_limit": 3_000, **SHORT, "batch_size": 32}
    laptop |= {"model.primary_caps": 8, "epochs": 4.0, "optimizer.lr": 3e-3, "cost": "3 min on 2 cores"}
    return at(scale, recipe, laptop)


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "vb2020/smallnorb": smallnorb,
    "vb2020/smallnorb-tiny": smallnorb_tiny,
}
