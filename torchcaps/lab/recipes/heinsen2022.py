"""Heinsen, *An Algorithm for Routing Vectors in Sequences*, 2022: SST on the hidden states of a frozen RoBERTa-large.

RAdam in one cycle, mixup of hidden states with Beta(0.65, 0.65), ten times 2,000 steps of 50. The smaller scale has the
data, the language model and the budget of the 2019 recipes, so that heads can be compared.
"""

from collections.abc import Callable
from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes import heinsen2019
from torchcaps.lab.recipes.base import AnyRecipe, Claim, Optimizer, Scale, Schedule, Transforms
from torchcaps.lab.recipes.changes import change
from torchcaps.lab.recipes.fitting import at

RADAM = Optimizer("radam", lr=1e-3)
CYCLE = Schedule("warmup_cosine", warmup=0.1, low=1e-5)
EPOCHS, EPOCHS_OF_TWO = 6.28, 12.88  # 20,000 steps of 50 over 159,274 phrases, and over 77,616
# As many parameters as the 2019 head has on MiniLM's states, on the same features.
SMALL = {"model.features": 64, "model.pose": 16, "model.caps": 16}
SMALL_OF_TWO = {"model.caps": 14}


def sst5(scale: Scale = "paper") -> AnyRecipe:
    """Hidden states of a frozen language model; all phrases of the training trees, tested on whole sentences.

    The smaller scale has the language model, the examples and the number of steps of ``heinsen2019/sst5``.
    """
    base = heinsen2019.sst5()
    recipe = replace(
        base,
        name="heinsen2022/sst5",
        claim=Claim("Papers with Code, the author's entry", "accuracy", 59.8, "with RoBERTa-large"),
        model_name="heinsen2022_sst5",
        model=models.entry("heinsen2022_sst5").config,
        text=replace(base.text, encoder="FacebookAI/roberta-large"),
        transforms=Transforms(mixup=0.65),
        optimizer=RADAM,
        schedule=CYCLE,
        epochs=EPOCHS,
        batch_size=50,
        cost="hours on a GPU, 110 GB for the states",
    )
    laptop = {**heinsen2019.MINILM, "optimizer.lr": 1e-3, "data.limit": 20_000, "batch_size": 20, "epochs": 3.0}
    return at(scale, recipe, {**laptop, "cost": "9 min on 2 cores"})


def sst2(scale: Scale = "paper") -> AnyRecipe:
    """The same with two sentiments, from the start; the author trains the last routing of the SST-5 head anew."""
    claim = Claim("Papers with Code, the author's entry", "accuracy", 96.0, "with RoBERTa-large")
    recipe = heinsen2019.make_of_two(sst5(scale), "heinsen2022/sst2", claim)
    return replace(recipe, epochs=EPOCHS_OF_TWO) if scale == "paper" else recipe


def sst5_small(scale: Scale = "paper") -> AnyRecipe:
    """Three vector routings on the features of the 2019 head, with as many parameters as it has on MiniLM's states: a
    comparison of ours."""
    return _small(sst5(scale), scale, SMALL)


def sst2_small(scale: Scale = "paper") -> AnyRecipe:
    """The same with two sentiments."""
    return _small(sst2(scale), scale, SMALL | SMALL_OF_TWO)


def _small(recipe: AnyRecipe, scale: Scale, sizes: dict[str, int]) -> AnyRecipe:
    claim = Claim("no figure: a comparison of ours", "accuracy", None)
    recipe = replace(recipe, name=f"{recipe.name}-small", claim=claim)
    if scale == "smoke":
        return change(recipe, {"model.features": 8})
    # The best of what was tried on validation sentences (see docs/language.md).
    regime = {"optimizer.lr": 2e-2, "cost": "2 min on 2 cores"} if scale == "laptop" else {}
    return change(recipe, {**sizes, **regime})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    "heinsen2022/sst5": sst5,
    "heinsen2022/sst2": sst2,
    "heinsen2022/sst5-small": sst5_small,
    "heinsen2022/sst2-small": sst2_small,
}
