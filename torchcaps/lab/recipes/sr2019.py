"""Hahn, Pyeon and Kim, *Self-Routing Capsule Networks*, NeurIPS 2019: CIFAR-10 and smallNORB.

The regime is that of the authors' code: SGD 0.1, momentum 0.9, weight decay 10⁻⁴, a batch of 64; × 0.1 at 150 and 250
of 350 epochs on CIFAR-10, at 100 and 150 of 200 on smallNORB. There each image of a pair is an example, resized to
48×48, cropped to 32×32 and jittered; training sees a third of the viewpoints, and the figure is of the others. The
authors pick the checkpoint on these novel views of the test set; here validation examples of the training views do
(``--data.val-size``). The figures are those of the authors' poster.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.fitting import SHORT, at
from torchcaps.lab.recipes.tsai2020 import CIFAR

SGD = Optimizer("sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
KEPT_FOR_VALIDATION = 1_620  # of smallNORB: a tenth, the share that the authors' code keeps of other data


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


def _smallnorb(axis: str, claim: Claim, scale: Scale) -> AnyRecipe:
    """Class capsules on six convolutions; a third of the azimuths or elevations for training."""
    recipe = Recipe(
        name=f"sr2019/smallnorb-{axis}",
        claim=claim,
        model_name="sr2019_smallnorb",
        model=models.entry("sr2019_smallnorb").config,
        data=Data(f"smallnorb_{axis}", val_size=KEPT_FOR_VALIDATION),
        transforms=Transforms(resize=48, crop=32, brightness=32 / 255, contrast=0.3),
        loss=Loss("nll"),
        optimizer=SGD,
        schedule=Schedule("steps", factor=0.1, milestones=(0.5, 0.75)),
        epochs=200.0,
        batch_size=64,
        cost="an hour on a GPU",
    )
    laptop = {"data.train": f"toys_{axis}", "data.limit": 6_000, "data.test_limit": 3_000, "data.val_size": 0, **SHORT}
    laptop |= {"model.widths": (16, 16, 32, 32, 32, 64), "model.caps": 8, "epochs": 4.0, "batch_size": 32}
    return at(scale, recipe, {**laptop, "cost": "3 min on 2 cores"})


def smallnorb_azimuth(scale: Scale = "paper") -> AnyRecipe:
    """Trained on azimuths of 300° to 40°, tested on the twelve others."""
    note = "± 1.03; 7.62 ± 0.95 on familiar azimuths"
    return _smallnorb("azimuth", Claim("poster, smallNORB, novel azimuths", "error", 19.86, note), scale)


def smallnorb_elevation(scale: Scale = "paper") -> AnyRecipe:
    """Trained on elevations of 30° to 40°, tested on the six higher ones."""
    note = "± 1.09; 5.96 ± 0.46 on familiar elevations"
    return _smallnorb("elevation", Claim("poster, smallNORB, novel elevations", "error", 15.91, note), scale)


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "sr2019/cifar10": cifar10,
    "sr2019/cifar10-deep": cifar10_deep,
    "sr2019/smallnorb-azimuth": smallnorb_azimuth,
    "sr2019/smallnorb-elevation": smallnorb_elevation,
}
