"""Hahn, Pyeon and Kim, *Self-Routing Capsule Networks*, NeurIPS 2019: CIFAR-10 and smallNORB.

The regime is that of the authors' code: SGD 0.1, momentum 0.9, weight decay 10⁻⁴, a batch of 64; × 0.1 at 150 and 250
of 350 epochs on CIFAR-10, at 100 and 150 of 200 on smallNORB, whose images are resized to 48×48, cropped to 32×32 and
jittered (its amounts are the usual ones). The figures are those of the authors' poster. On smallNORB they train on a
third of the azimuths, or of the elevations, and pick the checkpoint on novel views; this recipe trains on all of them.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.fitting import SHORT, at
from torchcaps.lab.recipes.tsai2020 import CIFAR

SGD = Optimizer("sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)


def cifar10(scale: Scale = "paper") -> AnyRecipe:
    """SR-1: class capsules on ResNet-20."""
    recipe = Recipe(
        name="sr2019/cifar10",
        claim=Claim("poster, CIFAR-10, SR-1", "error", 8.17, "± 0.18"),
        model_name="sr2019_cifar10",
        model=models.entry("sr2019_cifar10").config,
        data=Data("cifar10"),
        transforms=CIFAR,
        loss=Loss("nll"),
        optimizer=SGD,
        schedule=Schedule("steps", factor=0.1, milestones=(150 / 350, 250 / 350)),
        epochs=350.0,
        batch_size=64,
        cost="hours on a GPU",
    )
    laptop = {**SHORT, "data.limit": 20_000, "data.test_limit": 5_000, "epochs": 5.0, "optimizer.lr": 0.05}
    return at(scale, recipe, {**laptop, "model.width": 8, "model.caps": 8, "cost": "10 min on 2 cores"})


def cifar10_deep(scale: Scale = "paper") -> AnyRecipe:
    """SR-2: one more layer of capsules."""
    recipe = replace(
        cifar10(),
        name="sr2019/cifar10-deep",
        claim=Claim("poster, CIFAR-10, SR-2", "error", 7.86, "± 0.12"),
        model_name="sr2019_cifar10_deep",
        model=models.entry("sr2019_cifar10_deep").config,
    )
    laptop = {**SHORT, "data.limit": 20_000, "data.test_limit": 5_000, "epochs": 5.0, "optimizer.lr": 0.05}
    return at(scale, recipe, {**laptop, "model.width": 8, "model.caps": 8, "cost": "12 min on 2 cores"})


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    """Class capsules on six convolutions; both images of a pair are channels."""
    recipe = Recipe(
        name="sr2019/smallnorb",
        claim=Claim(
            "poster, smallNORB",
            "error",
            None,
            "7.62 ± 0.95 on familiar and 19.86 ± 1.03 on novel azimuths after a third of them, 5.96 and 15.91 of "
            "elevations; none after all",
        ),
        model_name="sr2019_smallnorb",
        model=models.configure("sr2019_smallnorb", channels=2),
        data=Data("smallnorb"),
        transforms=Transforms(resize=48, crop=32, brightness=32 / 255, contrast=0.5, standardize=True),
        loss=Loss("nll"),
        optimizer=SGD,
        schedule=Schedule("steps", factor=0.1, milestones=(0.5, 0.75)),
        epochs=200.0,
        batch_size=64,
        cost="an hour on a GPU",
    )
    laptop = {"data.train": "toys", "data.limit": 6_000, "data.test_limit": 3_000, **SHORT, "batch_size": 32}
    laptop |= {"model.widths": (16, 16, 32, 32, 32, 64), "model.caps": 8, "epochs": 4.0, "optimizer.lr": 0.05}
    return at(scale, recipe, {**laptop, "cost": "3 min on 2 cores"})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "sr2019/cifar10": cifar10,
    "sr2019/cifar10-deep": cifar10_deep,
    "sr2019/smallnorb": smallnorb,
}
