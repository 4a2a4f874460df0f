"""A recipe's examples: for training, validation and test; raw, and as loaders."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

import torchcaps.data as data
from torchcaps.data import Batch, Dataset, TextDataset
from torchcaps.data.base import Examples, place_evenly
from torchcaps.lab.loaders import ImageLoader, Loader, Subset
from torchcaps.lab.recipes import AnyRecipe, fit_to_data, training_of
from torchcaps.lab.training.batches import Shuffle
from torchcaps.models import Training

Split = Literal["train", "val", "test"]
FIXED = 20171026
"""Seed of the order that validation and limited examples are the first of: the same for every run."""


@lru_cache(maxsize=4)
def _fixed_order(size: int) -> Shuffle:
    """One order for all splits of a dataset, so that it is computed once."""
    return Shuffle(size, FIXED)


class ImageSubset(Dataset):
    """Some images of a dataset: number ``k`` of it is number ``select(k)`` there."""

    def __init__(self, dataset: Dataset, selection: "SubsetIndices") -> None:
        self.dataset, self.selection = dataset, selection
        self.name, self.split, self.classes = dataset.name, dataset.split, dataset.classes

    def __len__(self) -> int:
        return len(self.selection)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        return self.dataset.batch(self.selection.of(indices))

    def at_epoch(self, epoch: int) -> Dataset:
        return ImageSubset(self.dataset.at_epoch(epoch), self.selection)


class SubsetIndices:
    """Which examples of a dataset a recipe's split has, found without listing them: there may be tens of millions."""

    def __init__(self, recipe: AnyRecipe, split: Split, size: int) -> None:
        wanted = recipe.data
        self.split, self.size = split, size
        self.fixed = _fixed_order(size) if split != "test" and (wanted.val_size or wanted.limit) else None
        self.start = wanted.val_size if split == "train" else 0
        if wanted.val_size and split != "test" and not 0 < wanted.val_size < size:
            raise ValueError(
                f"data.val_size={wanted.val_size} of {size} examples of {wanted.train}; validate on fewer than all"
            )
        limit = {"train": wanted.limit, "val": wanted.val_size, "test": wanted.test_limit}[split]
        there = size - self.start
        if limit is not None and limit < (0 if split == "val" else 1):
            raise ValueError(f"a limit of {limit} examples; give at least 1, or leave it out for all")
        self.length = there if limit is None else min(limit, there)

    def __len__(self) -> int:
        return self.length

    def of(self, indices: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Numbers in the dataset of the examples of these numbers in the selection."""
        if self.fixed is not None:
            return self.fixed.at(indices + self.start)
        if self.length == self.size:
            return indices
        return place_evenly(indices, self.length, self.size)  # a test set is often sorted by class


class RecipeData:
    """All examples that a recipe speaks of: each split is loaded when first asked for, and once."""

    def __init__(self, recipe: AnyRecipe) -> None:
        self.recipe = recipe
        self._loaded: dict[tuple[Any, ...], Any] = {}

    def fit(self, say: Callable[[str], None] | None = None) -> AnyRecipe:
        """Fit the recipe's model to the examples, and take on the recipe that comes of it."""
        if self.recipe.is_text:
            from torchcaps.lab.text import fit_to_texts

            self.recipe = fit_to_texts(self.recipe, say)
        else:
            self.recipe = fit_to_data(self.recipe, say, self._load)
        return self.recipe

    def examples(self, split: Split) -> Examples[Any]:
        """The raw examples of a split."""
        if self.recipe.is_text:
            return self._texts(split)
        dataset = self._dataset(split)
        return ImageSubset(dataset, SubsetIndices(self.recipe, split, len(dataset)))

    def loader(self, split: Split, say: Callable[[str], object] = print) -> Loader:
        """The examples of a split, ready for the model."""
        if self.recipe.is_text:
            from torchcaps.lab.text import make_loader  # language models are heavy to import

            return self._once(("loader", split), lambda: make_loader(self._texts(split), self.recipe, say))
        dataset = self._dataset(split)
        selection = SubsetIndices(self.recipe, split, len(dataset))
        return Subset(ImageLoader(dataset, self.recipe.transforms), len(selection), selection.of)

    def training(self) -> Training:
        """What the file of a model that was trained on these examples says of them."""
        examples = self.examples("train")
        shape = examples.batch(torch.arange(1)).image.shape[1:] if isinstance(examples, Dataset) else None
        return training_of(self.recipe, examples.classes, shape)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that there are."""
        return ("train", "val", "test") if self.recipe.data.val_size else ("train", "test")

    def _texts(self, split: Split) -> TextDataset:
        from torchcaps.lab.text import examples

        return self._once(("texts", split), lambda: examples(self.recipe, split))

    def _dataset(self, split: Split) -> Dataset:
        if split not in get_args(Split):
            raise ValueError(f"no split {split!r}; there are {', '.join(map(repr, get_args(Split)))}")
        if split == "val" and not self.recipe.data.val_size:
            raise ValueError(f"{self.recipe.name} has no validation examples; train it with --data.val-size 1000 or so")
        return self._test() if split == "test" else self._train()

    def _once(self, key: tuple[Any, ...], load: Callable[[], Any]) -> Any:
        if key not in self._loaded:
            self._loaded[key] = load()
        return self._loaded[key]

    def _load(self, name: str, split: str, shape: tuple[int, int, int] | None = None) -> Dataset:
        return self._once((name, split, shape), lambda: data.load(name, split, shape=shape))

    def _train(self) -> Dataset:
        return self._load(self.recipe.data.train, "train")

    def _test(self) -> Dataset:
        wanted = self.recipe.data
        if not wanted.test or wanted.test == wanted.train:
            return self._load(wanted.train, "test")
        split = data.whole_split(wanted.test, "test")
        if not wanted.test.startswith("folder:"):
            return self._load(wanted.test, split)
        train = self._train()
        channels, rows, columns = train.batch(torch.arange(1)).image.shape[1:]
        found = self._load(wanted.test, split, (channels, rows, columns))
        if found.classes != train.classes:
            raise data.DataError(
                f"{wanted.test}: classes {', '.join(found.classes)} are not those of {wanted.train}: "
                f"{', '.join(train.classes)}; give both the same class folders"
            )
        return found
