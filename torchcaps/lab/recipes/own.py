"""For images and texts of one's own: ``torchcaps train my-photos``, ``torchcaps train reviews.csv --text-column review
--label-column stars``. ``recipe_for`` finds the recipe for what lies at a path.

Channels and classes are taken from the data, images are resized to 32×32 (``--transforms.resize`` says otherwise), and
``--model.routing`` names any of the routings.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torchcaps.models as models
from torchcaps.data import DataError, is_own
from torchcaps.data.listing import find_splits, visible
from torchcaps.data.pictures import SUFFIXES
from torchcaps.data.text import TABLE_SUFFIXES
from torchcaps.lab.recipes.base import (
    AnyRecipe,
    Claim,
    Data,
    Loss,
    Optimizer,
    Recipe,
    Scale,
    Schedule,
    Text,
    Transforms,
)
from torchcaps.lab.recipes.fitting import at


def images(scale: Scale = "paper") -> AnyRecipe:
    """A small residual network with one layer of capsules on it; at the scale ``laptop``, for fewer epochs."""
    recipe = Recipe(
        name="own/images",
        claim=Claim("your own data", "accuracy", None),
        model_name="zhao2020_cifar10",
        model=models.configure("zhao2020_cifar10", blocks=1, hidden=()),
        data=Data("folder:images"),
        transforms=Transforms(resize=32, pad=4),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("adam", lr=2e-3),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5),
        epochs=60.0,
        batch_size=32,
        cost="varies",
    )
    return at(scale, recipe, {"epochs": 15.0})


def text(scale: Scale = "paper") -> AnyRecipe:
    """Heinsen's network on the hidden states of a small language model, for a .csv, .tsv or .jsonl of texts and labels.

    One in five rows is for testing unless ``--data.test`` names another file; classes are taken from the labels.
    """
    recipe = Recipe(
        name="text",
        claim=Claim("your own data", "accuracy", None),
        model_name="heinsen2019_sst5",
        model=models.configure("heinsen2019_sst5", depth=7, embedding=384),
        data=Data("texts.csv"),
        text=Text("minilm"),
        transforms=Transforms(mixup=0.2),
        loss=Loss("cross_entropy"),
        optimizer=Optimizer("radam", lr=2e-3, momentum=0.9),
        schedule=Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.81),
        epochs=10.0,
        batch_size=20,
        cost="minutes",
    )
    return at(scale, recipe, {"epochs": 5.0})


RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {"own/images": images, "text": text}


class Found(NamedTuple):
    """The recipe for what lies at a path, and the options that name it."""

    recipe: str
    options: tuple[str, ...]


def recipe_for(word: str) -> Found | None:
    """The recipe for a path, or for ``folder:PATH`` or ``arrays:FILE.npz``; ``None`` where nothing of that name is.

    >>> recipe_for("arrays:mine.npz")
    Found(recipe='own/images', options=('--data.train', 'arrays:mine.npz'))
    """
    if is_own(word):
        return Found("own/images", ("--data.train", word))
    path = Path(word).expanduser()
    if not path.exists():
        return None
    if path.is_dir():
        return _for_folder(path)
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return Found("text", ("--data.train", str(path)))
    if suffix == ".npz":
        return Found("own/images", ("--data.train", f"arrays:{path}"))
    hint = f"name the folder of its class folders, not one image of {path.parent}" if suffix in SUFFIXES else ""
    expected = f"a folder with a folder of images for each class, a {', '.join(TABLE_SUFFIXES)} of texts, or an .npz"
    raise DataError(f"{path}: nothing to train on; {hint or f'expected {expected}'}")


def _for_folder(path: Path) -> Found:
    if (path / "recipe.json").is_file():
        raise DataError(f"{path}: is a run folder; go on with: torchcaps train --resume --out {path}")
    classes = [folder for place in find_splits(path).values() for folder in visible(place) if folder.is_dir()]
    if any(file.suffix.lower() in SUFFIXES for folder in classes for file in folder.rglob("*")):
        return Found("own/images", ("--data.train", f"folder:{path}"))
    tables = {file.stem.lower(): file for file in visible(path) if file.suffix.lower() in TABLE_SUFFIXES}
    if len(tables) == 1:
        return Found("text", ("--data.train", str(*tables.values())))
    if {"train", "test"} <= tables.keys():
        return Found("text", ("--data.train", str(tables["train"]), "--data.test", str(tables["test"])))
    if tables:
        raise DataError(f"{path}: has {len(tables)} tables; name one, such as {next(iter(tables.values()))}")
    arrays = [file for file in visible(path) if file.suffix.lower() == ".npz"]
    if len(arrays) == 1:
        return Found("own/images", ("--data.train", f"arrays:{arrays[0]}"))
    kinds = Counter(file.suffix.lower() or "no suffix" for file in visible(path) if file.is_file())
    there = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "no files"
    raise DataError(
        f"{path}: nothing to train on ({there}); put images at {path}/CLASS/NAME.png, a folder for each class, or name "
        f"a {', '.join(TABLE_SUFFIXES)} of texts"
    )
