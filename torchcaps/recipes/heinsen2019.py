"""Heinsen, *An Algorithm for Routing Capsules in All Domains*, 2019: smallNORB (§4) and SST (§5).

One regime for all: RAdam, a batch of 20, mixup with Beta(0.2, 0.2), the learning rate rising along a line over the
first tenth and falling along a cosine, the first momentum moving opposite. The momentum is the paper's, 0.999 and nine
tenths of it; his notebooks have 0.9 and 0.81.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.recipes.base import AnyRecipe, Claim, Data, Loss, Optimizer, Prepare, Recipe, Scale, Schedule
from torchcaps.recipes.changes import changed
from torchcaps.recipes.scaling import at

RADAM = Optimizer("radam", lr=5e-4, momentum=0.999)
CYCLE = Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.9 * 0.999)


def smallnorb(scale: Scale = "paper") -> AnyRecipe:
    """Whole stereo images, padded by 16 (their edges, as in his code) and cropped to 96×96 again."""
    recipe = Recipe(
        name="heinsen2019/smallnorb",
        claim=Claim("Table 2, row 5", "accuracy", 99.1),
        model_name="heinsen2019_smallnorb",
        model=models.entry("heinsen2019_smallnorb").config,
        data=Data("smallnorb"),
        prepare=Prepare(pad=16, fill="edge", crop=96, mixup=0.2),
        loss=Loss("cross_entropy"),
        optimizer=RADAM,
        schedule=CYCLE,
        epochs=50.0,
        batch_size=20,
        cost="hours on a GPU",
    )
    laptop = {"model.image_size": 48, "model.stem_channels": 32, "model.parts": 32}
    laptop |= {"prepare.resize": 48, "prepare.pad": 8, "prepare.crop": 48}
    laptop |= {"data.train": "toys", "data.limit": 8_000, "data.test_limit": 4_000}
    return at(scale, recipe, {**laptop, "epochs": 5.0, "cost": "5 min on 2 cores"})


def smallnorb_cnn(scale: Scale = "paper") -> AnyRecipe:
    """Three convolutions with pooling in place of the capsules, as many parameters and the same regime: a comparison of
    ours, for which the paper has no figure."""
    capsules = smallnorb()
    recipe = replace(
        capsules,
        name="heinsen2019/smallnorb-cnn",
        claim=Claim("no figure: a comparison of ours", "accuracy", None),
        model_name="cnn_tsai2020_cifar10",
        model=models.configure("cnn_tsai2020_cifar10", image_size=96, channels=2, classes=5, width=122),
        optimizer=replace(RADAM, momentum=0.9),
        schedule=replace(CYCLE, momentum_low=0.81),
    )
    laptop = {"model.image_size": 48, "model.width": 63, "prepare.resize": 48, "prepare.pad": 8, "prepare.crop": 48}
    laptop |= {"data.train": "toys", "data.limit": 8_000, "data.test_limit": 4_000}
    return at(scale, recipe, {**laptop, "epochs": 5.0, "cost": "2 min on 2 cores"})


def sst5(scale: Scale = "paper") -> AnyRecipe:
    """Hidden states of a frozen language model; all phrases of the training trees, tested on whole sentences."""
    recipe = Recipe(
        name="heinsen2019/sst5",
        claim=Claim("Table 3, last row", "accuracy", 58.5),
        model_name="heinsen2019_sst5",
        model=models.entry("heinsen2019_sst5").config,
        data=Data("sst5_phrases", "sst5", encoder="gpt2-large"),
        prepare=Prepare(mixup=0.2),
        loss=Loss("cross_entropy"),
        optimizer=RADAM,
        schedule=CYCLE,
        epochs=3.0,
        batch_size=20,
        cost="hours on a GPU, 120 GB for the states",
    )
    laptop = {"model.depth": 7, "model.embedding": 384, "data.encoder": "minilm", "data.train": "sst5"}
    return at(scale, recipe, {**laptop, "data.test": "", "epochs": 3.0, "cost": "8 min on 2 cores"})


def sst2(scale: Scale = "paper") -> AnyRecipe:
    """The same with two sentiments."""
    claim = Claim("Table 4, last row", "accuracy", 95.6)
    recipe = replace(sst5(scale), name="heinsen2019/sst2", claim=claim, model_name="heinsen2019_sst2")
    data = {"data.train": recipe.data.train.replace("sst5", "sst2"), "data.test": recipe.data.test.replace("5", "2")}
    return changed(recipe, {"model.classes": 2, **data})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "heinsen2019/smallnorb": smallnorb,
    "heinsen2019/smallnorb-cnn": smallnorb_cnn,
    "heinsen2019/sst5": sst5,
    "heinsen2019/sst2": sst2,
}
