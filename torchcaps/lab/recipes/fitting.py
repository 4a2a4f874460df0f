"""Recipes at another size: model fields that follow the data, and the scales below a paper's."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import torchcaps.data as data
import torchcaps.models as models
from torchcaps.data import DataError
from torchcaps.data.folder import FolderDataset
from torchcaps.lab.recipes.base import AnyRecipe, Scale, Schedule, Transforms
from torchcaps.lab.recipes.changes import Changes, change, differences


def fit_to_data(
    recipe: AnyRecipe, say: Callable[[str], None] | None = None, load: Callable[[str, str], data.Dataset] = data.load
) -> AnyRecipe:
    """The recipe with a model for the images and classes of its training data, which ``load`` reads.

    Nothing changes where the model fits already. What did change is told to ``say``, one line in all.
    """
    name = recipe.data.train
    if not data.is_own(name) and data.entry(name).text:
        raise ValueError(f"{name} holds texts, and {recipe.name} is for images; give --text.encoder, or other data")
    examples = load(name, first_split(name))
    _check_own(name, examples, say, load)
    image = examples.batch(torch.arange(1)).image
    channels, rows, columns = image.shape[1:]
    fitted = recipe
    if isinstance(examples, FolderDataset) and examples.resized:
        fitted = _resize_as_the_model(recipe)
    fitted = fit_to_images(fitted, channels, (rows, columns), len(examples.classes))
    return _tell(recipe, fitted, say)


def _check_own(
    name: str,
    examples: data.Dataset,
    say: Callable[[str], None] | None,
    load: Callable[[str, str], data.Dataset],
) -> None:
    """Tell how a user's own examples are read, and refuse images that cannot be, before training begins."""
    for number, note in enumerate(examples.notes):
        if say is not None:
            say(f"{'  ' if number else f'{name}: '}{note}")
    if not isinstance(examples, FolderDataset):
        return
    others = [load(name, split) for split in data.splits(name) if split not in ("all", examples.split)]
    damaged = [
        problem for part in (examples, *others) if isinstance(part, FolderDataset) for problem in part.find_damaged()
    ]
    if damaged:
        count = f"{len(damaged)} damaged images, such as " if len(damaged) > 1 else ""
        raise DataError(f"{count}{chr(10).join(damaged[:5])}")


def _resize_as_the_model(recipe: AnyRecipe) -> AnyRecipe:
    """Images of several sizes have none of their own: those of the recipe's model will do."""
    side = getattr(recipe.model, "image_size", None)
    if recipe.transforms.resize is not None or recipe.transforms.crop is not None or not isinstance(side, int):
        return recipe
    return change(recipe, {"transforms.resize": side})


def _tell(before: AnyRecipe, after: AnyRecipe, say: Callable[[str], None] | None) -> AnyRecipe:
    found = differences(before, after)
    if say is not None and found:
        changes = ", ".join(f"{one.field} {one.before} → {one.after}" for one in found)
        say(f"fitted to {before.data.train}: {changes}")
    return after


def first_split(name: str) -> str:
    """The split to train on: ``train``, or the only one of a folder without splits."""
    splits = data.splits(name)
    return "train" if "train" in splits else splits[0]


def fit_to_images(recipe: AnyRecipe, channels: int, size: tuple[int, int], classes: int) -> AnyRecipe:
    """The recipe for images of these channels and this size before preparation, and so many classes."""
    changes: dict[str, Any] = {}
    has = {field.name for field in dataclasses.fields(recipe.model)}
    if not {"image_size", "channels"} <= has:
        raise ValueError(f"{recipe.model_name} takes no images, but {recipe.data.train} has some; choose other data")
    side = prepared_size(recipe.transforms, size)
    given = recipe.model.image_size
    if side != ((given, given) if isinstance(given, int) else tuple(given)):
        changes["model.image_size"] = side[0] if side[0] == side[1] else side
    changes |= {"model.channels": channels, "model.classes": classes}
    for name in ("mean", "std"):  # those of other channels mean nothing here
        if len(getattr(recipe.transforms, name)) not in (0, channels):
            changes[f"transforms.{name}"] = ()
    return change(recipe, changes)


def prepared_size(transforms: Transforms, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of what the model is given, for images of this size."""
    rows, columns = (transforms.resize, transforms.resize) if transforms.resize is not None else size
    if transforms.crop is None:
        return rows, columns
    if min(rows, columns) + 2 * transforms.pad < transforms.crop:
        raise ValueError(
            f"images of {rows}×{columns} pixels are too small for crops of {transforms.crop}; "
            f"give --transforms.crop a smaller side, or --transforms.resize {transforms.crop}"
        )
    return transforms.crop, transforms.crop


STEPS = 2
EXAMPLES = 16

SHORT: Changes = {
    "batch_size": 64,
    "schedule": Schedule("warmup_cosine", warmup=0.1, low=1e-5),
}
"""What every run of minutes changes: more steps for the same images, and a learning rate that ends low."""

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
        return change(recipe, laptop)
    return smoke(recipe)


def smoke(recipe: AnyRecipe) -> AnyRecipe:
    """Two steps on what ships with the package, with the same layers at a fraction of their width."""
    smallest = models.entry(recipe.model_name).smallest
    small = change(recipe, {f"model.{name}": value for name, value in smallest.items()})
    small = replace(small, epochs=1.0, max_steps=STEPS, batch_size=8, grad_accum_steps=1, stop_at=None, cost="seconds")
    limits = {"data.val_size": 0, "data.limit": EXAMPLES, "data.test_limit": EXAMPLES}
    if recipe.is_text:  # the smallest language model, since none ships; sentences, as phrases are mostly words
        sentences = {"data.train": recipe.data.train.removesuffix("_phrases"), "text.encoder": "minilm"}
        return change(small, {**limits, **sentences, "text.keep": False, "model.depth": 7, "model.embedding": 384})
    train, channels, size, classes = SHIPPED.get(recipe.data.train, SAMPLE)
    test = SHIPPED[recipe.data.test][0] if recipe.data.test in SHIPPED else ""
    small = change(small, limits | {"data.train": train, "data.test": test})
    if recipe.transforms.resize is None and (recipe.transforms.crop or 0) > max(
        size
    ):  # Heinsen's convolutions want larger images
        small = change(small, {"transforms.resize": 48, "transforms.pad": 4, "transforms.crop": 48})
    elif recipe.transforms.resize is None and recipe.transforms.crop is None and size == (28, 28) and _wants_32(recipe):
        small = change(small, {"transforms.resize": 32})
    return fit_to_images(small, channels, size, classes)


def _wants_32(recipe: AnyRecipe) -> bool:
    return recipe.model.image_size == 32
