"""Sabour, Frosst and Hinton, *Dynamic Routing Between Capsules*, NIPS 2017: Table 1, §5.2 and §7.

Given: Adam with TensorFlow's defaults and an exponentially decaying learning rate, a batch of 128 (Fig. A.2), shifts by
up to 2 pixels, reconstruction × 0.0005. From the authors' code: the decay, × 0.96 every 2,000 steps. Not given: how
long; 500 epochs are those of the network in Fig. A.1.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.models.sabour2017 import CapsNetConfig
from torchcaps.recipes.base import (
    AnyRecipe,
    Claim,
    Data,
    Loss,
    Optimizer,
    Prepare,
    Recipe,
    Routing,
    Scale,
    Schedule,
)
from torchcaps.recipes.changes import changed
from torchcaps.recipes.scaling import at

CapsNetRecipe = Recipe[CapsNetConfig]

ADAM = Optimizer("adam", lr=1e-3)
DECAY = Schedule("exponential", factor=0.96, every=2000)
RECONSTRUCTING = Loss("margin", reconstruction=0.0005)
NARROW = {"model.stem_channels": 64, "model.primary_types": 8}


def _capsnet(name: str, model_name: str, claim: Claim, data: Data, prepare: Prepare, cost: str) -> CapsNetRecipe:
    return Recipe(
        name=f"sabour2017/{name}",
        claim=claim,
        model_name=model_name,
        model=models.entry(model_name).config,
        data=data,
        prepare=prepare,
        loss=RECONSTRUCTING,
        optimizer=ADAM,
        schedule=DECAY,
        epochs=500.0,
        cost=cost,
    )


def mnist(scale: Scale = "paper") -> AnyRecipe:
    """Three iterations, with reconstruction."""
    claim = Claim("Table 1, row 5", "error", 0.25, "mean of 3 runs, deviation 0.005")
    recipe = _capsnet("mnist", "sabour2017_mnist", claim, Data("mnist"), Prepare(pad=2), "hours on a GPU")
    laptop = {**NARROW, "data.limit": 20_000, "epochs": 8.0, "cost": "5 min on 2 cores"}
    laptop |= {"schedule.every": 200}
    return at(scale, recipe, laptop)


def mnist_no_reconstruction(scale: Scale = "paper") -> AnyRecipe:
    claim = Claim("Table 1, row 4", "error", 0.35, "mean of 3 runs, deviation 0.036")
    changes = {"model.decoder": False, "loss.reconstruction": 0.0, "claim": claim}
    return changed(mnist(scale), {"name": "sabour2017/mnist-no-reconstruction", **changes})


def mnist_1_iteration(scale: Scale = "paper") -> AnyRecipe:
    claim = Claim("Table 1, row 3", "error", 0.29, "mean of 3 runs, deviation 0.011")
    return replace(mnist(scale), name="sabour2017/mnist-1-iteration", claim=claim, routing=Routing(num_iters=1))


def mnist_1_iteration_no_reconstruction(scale: Scale = "paper") -> AnyRecipe:
    return replace(
        mnist_no_reconstruction(scale),
        name="sabour2017/mnist-1-iteration-no-reconstruction",
        claim=Claim("Table 1, row 2", "error", 0.34, "mean of 3 runs, deviation 0.032"),
        routing=Routing(num_iters=1),
    )


def mnist_cnn(scale: Scale = "paper") -> AnyRecipe:
    """The baseline; its schedule is not given: that of CapsNet."""
    recipe = Recipe(
        name="sabour2017/mnist-cnn",
        claim=Claim("Table 1, row 1", "error", 0.39),
        model_name="cnn_sabour2017_mnist",
        model=models.entry("cnn_sabour2017_mnist").config,
        data=Data("mnist"),
        prepare=Prepare(pad=2),
        loss=Loss("cross_entropy"),
        optimizer=ADAM,
        schedule=DECAY,
        epochs=500.0,
        cost="hours on a GPU",
    )
    laptop = {"model.widths": (32, 32, 16), "data.limit": 20_000, "epochs": 8.0, "cost": "3 min on 2 cores"}
    return at(scale, recipe, laptop | {"schedule.every": 200})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "sabour2017/mnist": mnist,
    "sabour2017/mnist-no-reconstruction": mnist_no_reconstruction,
    "sabour2017/mnist-1-iteration": mnist_1_iteration,
    "sabour2017/mnist-1-iteration-no-reconstruction": mnist_1_iteration_no_reconstruction,
    "sabour2017/mnist-cnn": mnist_cnn,
}
