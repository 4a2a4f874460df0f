"""Zhao, Wang and Huang, *An Efficient Agreement Mechanism in CapsNets by Pairwise Product*, ECAI 2020: Tables 2, 3
and 6, §4.3.2, and the comparison within CapsNet of Fig. 4.

Table 2 follows the CIFAR-10 regime of ResNet (He et al. 2016), as the authors' code has it: SGD 0.1, momentum 0.9,
weight decay 10⁻⁴, × 0.1 after epochs 81 and 122 of 163, a batch of 128, padding by 4; mirroring on CIFAR-10 alone (as
in §4.1). Not given: how long the networks with a decoder are trained (50 epochs here, 10 on MultiMNIST), and the weight
of the reconstruction (Sabour's).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.changes import change
from torchcaps.lab.recipes.fitting import SHORT, at

SGD = Optimizer("sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
ADAM = Optimizer("adam", lr=1e-3, eps=1e-7)  # ε as printed in §4.1
STEPS = Schedule("steps", factor=0.1, milestones=(81 / 163, 122 / 163))
DECODING = 0.0005
OPPONENTS = {"dynamic": "dynamic routing", "em": "EM routing"}


def _deep(end: str, model_name: str, claim: Claim, data: str, transforms: Transforms) -> AnyRecipe:
    return Recipe(
        name=f"zhao2020/{end}",
        claim=claim,
        model_name=model_name,
        model=models.entry(model_name).config,
        data=Data(data),
        transforms=transforms,
        loss=Loss("cross_entropy"),
        optimizer=SGD,
        schedule=STEPS,
        epochs=163.0,
        cost="hours on a GPU",
    )


def fashion_mnist(scale: Scale = "paper") -> AnyRecipe:
    claim = Claim("Table 2, last row", "accuracy", 94.70, "mean of 3 runs, deviation 0.17")
    recipe = _deep("fashion-mnist", "zhao2020_fashion_mnist", claim, "fashion_mnist", Transforms(pad=4))
    return at(scale, recipe, {**SHORT, "model.blocks": 1, "epochs": 2.0, "cost": "5 min on 2 cores"})


def cifar10(scale: Scale = "paper") -> AnyRecipe:
    claim = Claim("Table 2, last row", "accuracy", 93.20, "mean of 3 runs, deviation 0.24")
    recipe = _deep("cifar10", "zhao2020_cifar10", claim, "cifar10", Transforms(pad=4, flip=True))
    laptop = {**SHORT, "model.blocks": 2, "data.limit": 20_000, "data.test_limit": 5_000}
    return at(scale, recipe, {**laptop, "epochs": 4.0, "cost": "6 min on 2 cores"})


def svhn(scale: Scale = "paper") -> AnyRecipe:
    claim = Claim("Table 2, last row", "accuracy", 96.79, "mean of 3 runs, deviation 0.04")
    recipe = _deep("svhn", "zhao2020_cifar10", claim, "svhn", Transforms(pad=4))
    laptop = {**SHORT, "model.blocks": 2, "data.limit": 20_000, "data.test_limit": 5_000}
    return at(scale, recipe, {**laptop, "epochs": 4.0, "cost": "6 min on 2 cores"})


def affnist(scale: Scale = "paper") -> AnyRecipe:
    """Trained on digits that were only moved, tested on affNIST. Softmax cross-entropy (§3.2; §4.3 has the margin loss,
    which its MultiMNIST takes)."""
    recipe = Recipe(
        name="zhao2020/affnist",
        claim=Claim("Table 3, row 5", "accuracy", 93.85, "mean of 3 runs, deviation 0.29"),
        model_name="zhao2020_affnist",
        model=models.entry("zhao2020_affnist").config,
        data=Data("translated_mnist", "affnist"),
        loss=Loss("cross_entropy", reconstruction=DECODING),
        optimizer=replace(ADAM, lr=1e-4),
        epochs=50.0,
        cost="an hour on a GPU",
    )
    laptop = {**SHORT, "data.test": "affine_mnist", "optimizer.lr": 1e-3, "epochs": 2.0}
    return at(scale, recipe, {**laptop, "cost": "5 min on 2 cores"})


AFFNIST_ROWS = {"dynamic": (3, 92.06, "0.71"), "em": (4, 78.29, "2.04")}


def affnist_opponent(routing: str, scale: Scale = "paper") -> AnyRecipe:
    """The same network with another routing."""
    row, target, deviation = AFFNIST_ROWS[routing]
    claim = Claim(f"Table 3, row {row}", "accuracy", target, f"mean of 3 runs, deviation {deviation}")
    recipe = replace(affnist(scale), name=f"zhao2020/affnist-{routing}", claim=claim)
    return change(recipe, {"model.routing": routing})


def multimnist(scale: Scale = "paper") -> AnyRecipe:
    """100 pairs of each digit; margin loss on the agreement itself, the two largest decide."""
    recipe = Recipe(
        name="zhao2020/multimnist",
        claim=Claim("§4.3.2", "accuracy", 94.5, "both digits correct"),
        model_name="zhao2020_multimnist",
        model=models.entry("zhao2020_multimnist").config,
        data=Data("multimnist", limit=6_000_000, test_limit=1_000_000),
        loss=Loss("margin", on="score", decision="two_most_active", reconstruction=DECODING),
        optimizer=replace(ADAM, lr=1e-4),
        epochs=10.0,
        cost="a day on a GPU",
    )
    laptop = {**SHORT, "data.limit": 80_000, "data.test_limit": 5_000, "optimizer.lr": 1e-3, "epochs": 1.0}
    return at(scale, recipe, {**laptop, "cost": "5 min on 2 cores"})


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    """SGD 0.01, halved every 20 of 120 epochs. How images become 32×32 is not given: as in Sabour 2017."""
    recipe = Recipe(
        name="zhao2020/smallnorb",
        claim=Claim("Table 6, row 7", "accuracy", 93.60, "mean of 3 runs, deviation 0.53"),
        model_name="zhao2020_smallnorb",
        model=models.entry("zhao2020_smallnorb").config,
        data=Data("smallnorb"),
        transforms=Transforms(resize=48, crop=32),
        loss=Loss("cross_entropy"),
        optimizer=replace(SGD, lr=0.01),
        schedule=Schedule("steps", factor=0.5, milestones=tuple(epoch / 120 for epoch in (20, 40, 60, 80, 100))),
        epochs=120.0,
        batch_size=64,
        cost="an hour on a GPU",
    )
    laptop = {**SHORT, "data.train": "toys", "epochs": 6.0, "cost": "5 min on 2 cores"}
    return at(scale, recipe, laptop)


SMALLNORB_ROWS = {"dynamic": (3, 3, 93.36, "0.69"), "em": (5, 2, 93.55, "0.75")}


def smallnorb_opponent(routing: str, scale: Scale = "paper") -> AnyRecipe:
    """The same network with another routing, at its best number of iterations."""
    row, iterations, target, deviation = SMALLNORB_ROWS[routing]
    claim = Claim(f"Table 6, row {row}", "accuracy", target, f"mean of 3 runs, deviation {deviation}")
    recipe = replace(smallnorb(scale), name=f"zhao2020/smallnorb-{routing}", claim=claim)
    return change(recipe, {"model.routing": routing, "model.num_iters": iterations})


CAPSNETS = {"fashion-mnist": ("sabour2017_mnist", "fashion_mnist"), "cifar10": ("sabour2017_mnist", "cifar10")}


def capsnet(name: str, routing: str, scale: Scale = "paper") -> AnyRecipe:
    """Sabour's network without its decoder, its routing exchanged (§4.1, Fig. 4); the loss is not given: softmax
    cross-entropy on the scores, as everywhere else in the paper."""
    model_name, data = CAPSNETS[name]
    size = {"image_size": 32, "channels": 3} if name == "cifar10" else {}
    recipe = Recipe(
        name=f"zhao2020/{name}-capsnet-{routing}",
        claim=Claim("Fig. 4", "accuracy", None, "a curve: FM agreement above dynamic routing"),
        model_name=model_name,
        model=models.configure(model_name, decoder=False, routing=routing, **size),
        data=Data(data),
        loss=Loss("cross_entropy"),
        optimizer=ADAM,
        epochs=50.0,
        cost="hours on a GPU",
    )
    laptop = {**SHORT, "model.stem_channels": 64, "model.primary_caps": 8, "data.limit": 30_000, "epochs": 3.0}
    return at(scale, recipe, {**laptop, "cost": "4 min on 2 cores"})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "zhao2020/fashion-mnist": fashion_mnist,
    "zhao2020/cifar10": cifar10,
    "zhao2020/svhn": svhn,
    "zhao2020/affnist": affnist,
    "zhao2020/affnist-dynamic": partial(affnist_opponent, "dynamic"),
    "zhao2020/affnist-em": partial(affnist_opponent, "em"),
    "zhao2020/multimnist": multimnist,
    "zhao2020/smallnorb": smallnorb,
    "zhao2020/smallnorb-dynamic": partial(smallnorb_opponent, "dynamic"),
    "zhao2020/smallnorb-em": partial(smallnorb_opponent, "em"),
    "zhao2020/fashion-mnist-capsnet-fm": partial(capsnet, "fashion-mnist", "fm"),
    "zhao2020/fashion-mnist-capsnet-dynamic": partial(capsnet, "fashion-mnist", "dynamic"),
    "zhao2020/cifar10-capsnet-fm": partial(capsnet, "cifar10", "fm"),
    "zhao2020/cifar10-capsnet-dynamic": partial(capsnet, "cifar10", "dynamic"),
}
