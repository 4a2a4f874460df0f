"""Hinton, Sabour and Frosst, *Matrix Capsules with EM Routing*, ICLR 2018: smallNORB.

The regime is that of the authors' code: Adam 0.01 × 0.96 every 20,000 steps, weight decay 2·10⁻⁷, a batch of 64; images
resized to 48×48, crops of 32×32, jitter of brightness and contrast (its amounts are the usual ones), standardized. The
figure and the 300 epochs are as Heinsen 2019 quotes them.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.fitting import SHORT, at


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    recipe = Recipe(
        name="hinton2018/smallnorb",
        claim=Claim("Heinsen 2019, Table 2, row 3", "accuracy", 98.2, "98.6 as a mean over several crops"),
        model_name="hinton2018_smallnorb",
        model=models.entry("hinton2018_smallnorb").config,
        data=Data("smallnorb"),
        transforms=Transforms(resize=48, crop=32, brightness=32 / 255, contrast=0.5, standardize=True),
        loss=Loss("spread"),
        optimizer=Optimizer("adam", lr=0.01, weight_decay=2e-7),
        schedule=Schedule("exponential", factor=0.96, every=20_000),
        epochs=300.0,
        batch_size=64,
        cost="days on a GPU",
    )
    laptop = {"model.stem_channels": 64, "model.caps": (8, 8, 8), "data.train": "toys", "data.limit": 6_000, **SHORT}
    laptop |= {"data.test_limit": 3_000, "loss.margin_steps": 700, "epochs": 4.0, "cost": "4 min on 2 cores"}
    # In a thousand steps λ = 0.01 keeps all presences near a half, and gradients through a third iteration are too wild
    # to follow: a batch of 32 is learned by heart in 30 steps with two iterations, with three not in 60. Classes with
    # all of λ = 0.1 would be present from the start, and a presence of 1 has no gradient.
    laptop |= {"model.num_iters": 2, "model.inverse_temperature": 0.1, "model.class_temperature_share": 0.1}
    return at(scale, recipe, {**laptop, "model.stem_norm": True, "batch_size": 32, "optimizer.lr": 5e-3})


def smallnorb_cnn(scale: Scale = "paper") -> AnyRecipe:
    """A plain network in place of the capsules, two convolutions with pooling and a wide layer, for comparison: no text
    at hand prints a figure of the paper's own."""
    recipe = replace(
        smallnorb(),
        name="hinton2018/smallnorb-cnn",
        claim=Claim("no figure at hand", "accuracy", None),
        model_name="cnn_sabour2017_multimnist",
        model=models.configure(
            "cnn_sabour2017_multimnist", image_size=32, channels=2, classes=5, widths=(32, 64), hidden=1024
        ),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("adam", lr=1e-3),
        epochs=50.0,
        cost="an hour on a GPU",
    )
    laptop = {"model.hidden": 128, "data.train": "toys", "data.limit": 6_000, "data.test_limit": 3_000, **SHORT}
    return at(scale, recipe, {**laptop, "batch_size": 32, "epochs": 4.0, "cost": "2 min on 2 cores"})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "hinton2018/smallnorb": smallnorb,
    "hinton2018/smallnorb-cnn": smallnorb_cnn,
}
