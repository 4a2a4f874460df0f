"""The two scales below a paper's: one for two cores, by the changes that a recipe names; one of two steps, for all."""

from dataclasses import replace

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Scale, Schedule
from torchcaps.lab.recipes.changes import Changes, changed
from torchcaps.lab.recipes.fitting import fit_to_images

STEPS = 2
EXAMPLES = 16

SHORT: Changes = {
    "batch_size": 64,
    "schedule": Schedule("warmup_cosine", warmup=0.1, low=1e-5),
}
"""What every run of minutes changes: more steps for the same images, and a learning rate that comes to rest."""

# What ships in place of a paper's data: the dataset, and its channels, size and classes.
SAMPLE = ("mnist_sample", 1, (28, 28), 10)
SHIPPED: dict[str, tuple[str, int, tuple[int, int], int]] = {
    "multimnist": ("multimnist:mnist_sample", 1, (36, 36), 10),
    "diverse_multimnist": ("diverse_multimnist:mnist_sample", 1, (36, 36), 10),
    "translated_mnist": ("translated_mnist:mnist_sample", 1, (40, 40), 10),
    "affine_mnist": ("affine_mnist:mnist_sample", 1, (40, 40), 10),
    "affnist": ("affine_mnist:mnist_sample", 1, (40, 40), 10),
}


def at(scale: Scale, recipe: AnyRecipe, laptop: Changes) -> AnyRecipe:
    """The recipe at a scale: ``laptop`` says what is smaller there; of two steps all recipes are alike."""
    if scale == "paper":
        return recipe
    if scale == "laptop":
        return changed(recipe, laptop)
    return smoke(recipe)


def smoke(recipe: AnyRecipe) -> AnyRecipe:
    """Two steps on what ships with the package, with the same layers at a fraction of their width."""
    smallest = models.entry(recipe.model_name).smallest
    small = changed(recipe, {f"model.{name}": value for name, value in smallest.items()})
    small = replace(small, epochs=1.0, max_steps=STEPS, batch_size=8, grad_accum_steps=1, stop_at=None, cost="seconds")
    limits = {"data.val_size": 0, "data.limit": EXAMPLES, "data.test_limit": EXAMPLES}
    if recipe.text.encoder:  # the smallest language model, since none ships; sentences, as phrases are mostly words
        sentences = {"data.train": recipe.data.train.removesuffix("_phrases"), "text.encoder": "minilm"}
        return changed(small, {**limits, **sentences, "text.keep": False, "model.depth": 7, "model.embedding": 384})
    train, channels, size, classes = SHIPPED.get(recipe.data.train, SAMPLE)
    test = SHIPPED[recipe.data.test][0] if recipe.data.test in SHIPPED else ""
    small = changed(small, limits | {"data.train": train, "data.test": test})
    if recipe.transforms.resize is None and (recipe.transforms.crop or 0) > max(
        size
    ):  # Heinsen's convolutions want larger images
        small = changed(small, {"transforms.resize": 48, "transforms.pad": 4, "transforms.crop": 48})
    elif recipe.transforms.resize is None and recipe.transforms.crop is None and size == (28, 28) and _wants_32(recipe):
        small = changed(small, {"transforms.resize": 32})
    return fit_to_images(small, channels, size, classes)


def _wants_32(recipe: AnyRecipe) -> bool:
    return recipe.model.image_size == 32
