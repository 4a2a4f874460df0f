"""A recipe's examples: those to train on, those held out, those to test on; raw, and as feeds."""

from functools import cached_property
from types import ModuleType
from typing import Any, Literal, get_args

from jaxtyping import Int
from torch import Tensor

import torchcaps.data as data
from torchcaps.data import Batch, Dataset
from torchcaps.data.base import Examples
from torchcaps.feeds import Feed, ImageFeed, Selected
from torchcaps.recipes import AnyRecipe
from torchcaps.train.order import Shuffle

Split = Literal["train", "held_out", "test"]
FIXED = 20171026
"""Seed of the order that held-out and limited examples are the first of: the same for every run."""


class SelectedImages(Dataset):
    """Some images of a dataset: number ``k`` of it is number ``select(k)`` there."""

    def __init__(self, dataset: Dataset, selection: "Selection") -> None:
        self.dataset, self.selection = dataset, selection
        self.name, self.split, self.classes = dataset.name, dataset.split, dataset.classes

    def __len__(self) -> int:
        return len(self.selection)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        return self.dataset.batch(self.selection.of(indices))


class Selection:
    """Which examples of a dataset a recipe's split has, found without listing them: there may be tens of millions."""

    def __init__(self, recipe: AnyRecipe, split: Split, size: int) -> None:
        wanted = recipe.data
        self.split, self.size = split, size
        self.fixed = Shuffle(size, FIXED) if split != "test" and (wanted.held_out or wanted.limit) else None
        self.start = wanted.held_out if split == "train" else 0
        if wanted.held_out and split != "test" and not 0 < wanted.held_out < size:
            raise ValueError(
                f"data.held_out={wanted.held_out} of {size} examples of {wanted.train}; hold out fewer than all"
            )
        limit = {"train": wanted.limit, "held_out": wanted.held_out, "test": wanted.test_limit}[split]
        there = size - self.start
        if limit is not None and limit < (0 if split == "held_out" else 1):
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
        # Evenly over the test set, which is often sorted by class; whole numbers, as a float cannot count that far.
        return indices * (self.size - 1) // max(1, self.length - 1)


class RecipeData:
    """All examples that a recipe speaks of, loaded when first asked for."""

    def __init__(self, recipe: AnyRecipe) -> None:
        self.recipe = recipe

    def examples(self, split: Split) -> Examples[Any]:
        """The raw examples of a split."""
        self._check(split)
        if self.recipe.text.encoder:
            return texts().examples(self.recipe, split)
        dataset = self._dataset(split)
        return SelectedImages(dataset, Selection(self.recipe, split, len(dataset)))

    def feed(self, split: Split) -> Feed:
        """The examples of a split, ready for the model."""
        self._check(split)
        if self.recipe.text.encoder:
            return make_feed(self.examples(split), self.recipe)
        dataset = self._dataset(split)
        selection = Selection(self.recipe, split, len(dataset))
        return Selected(make_feed(dataset, self.recipe), len(selection), selection.of)

    def _check(self, split: Split) -> None:
        if split not in get_args(Split):
            raise ValueError(f"no split {split!r}; there are {', '.join(map(repr, get_args(Split)))}")
        if split == "held_out" and not self.recipe.data.held_out:
            raise ValueError(f"{self.recipe.name} holds no examples out; train it with --data.held-out 1000 or so")

    def _dataset(self, split: Split) -> Dataset:
        found: Any = self._test if split == "test" else self._train
        if not isinstance(found, Dataset):
            raise ValueError(
                f"{found.name} holds texts, and {self.recipe.name} is for images; name a language model to read them "
                "with (--text.encoder minilm), or give images"
            )
        return found

    @cached_property
    def _train(self) -> Examples[Any]:
        return data.load(self.recipe.data.train, "train")

    @cached_property
    def _test(self) -> Examples[Any]:
        return data.load(self.recipe.data.test or self.recipe.data.train, "test")


def make_feed(dataset: Examples[Any], recipe: AnyRecipe) -> Feed:
    """The feed for a dataset, whatever it holds."""
    if isinstance(dataset, Dataset):
        return ImageFeed(dataset, recipe.prepare)
    return texts().make_feed(dataset, recipe)


def texts() -> ModuleType:
    """The room of texts, which is only entered when it is needed: language models are heavy to import."""
    import torchcaps.text as text

    return text
