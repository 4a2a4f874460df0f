"""Other data for a model: prepared as its own were, and refused where they do not fit."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

import torchcaps.data as data
from torchcaps.data import Dataset
from torchcaps.data.base import DataError, Examples
from torchcaps.data.text import TextDataset
from torchcaps.lab.evaluation.own_images import wanted_shape
from torchcaps.lab.evaluation.subjects import Subject, describe_difference
from torchcaps.lab.loaders import Fed, Feed, ImageFeed, views
from torchcaps.models.base import device_of


class Renumbered:
    """A feed whose classes are some of a model's: labels get the model's numbers."""

    def __init__(self, feed: Feed, classes: Sequence[str]) -> None:
        self.feed, self.classes = feed, tuple(classes)
        self.number = torch.tensor([self.classes.index(name) for name in feed.classes])

    def __len__(self) -> int:
        return len(self.feed)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> Fed:
        return self._with_labels(self.feed.batch(indices, generator))

    def views(self, indices: Int[Tensor, "n"]) -> list[Fed]:
        return [self._with_labels(fed) for fed in views(self.feed, indices)]

    def _with_labels(self, fed: Fed) -> Fed:
        if fed.label.ndim == 1:
            label = self.number[fed.label]
        else:
            label = fed.label.new_zeros(len(fed.label), len(self.classes)).index_copy(1, self.number, fed.label)
        return Fed(fed.inputs, label, label, fed.image)


def feed_of(subject: Subject, name: str = "", split: str = "test") -> tuple[Feed, str, str]:
    """The examples to evaluate on, what to call them, and a remark if there is one to make: the run's own data, or
    those of a name that ``torchcaps.data`` knows."""
    if not name:
        if subject.run is None:
            raise ValueError(f"{subject.name} is a model without a run, so without data; name some with --data")
        chosen = subject.run.recipe.data
        own = (chosen.test or chosen.train) if split == "test" else chosen.train
        feed = subject.run.feed(split)  # pyright: ignore[reportArgumentType]
        _check_shape(subject, feed, own)
        return _with_classes(subject, feed, own)[0], f"{own}/{split}", ""
    dataset = load_split(subject, name, split)
    feed = ImageFeed(dataset, subject.prepare) if isinstance(dataset, Dataset) else _text_feed(dataset, subject)
    _check_shape(subject, feed, name)
    feed, remark = _with_classes(subject, feed, name)
    return feed, f"{name}/{dataset.split}", "; ".join((*dataset.notes, *([remark] if remark else [])))


def load_split(subject: Subject, name: str, split: str) -> Examples[Any]:
    """A split of a dataset. Images of a folder are read as ``torchcaps predict`` reads them; those of a folder without
    splits are all for evaluation, unless the subject was trained on some of them."""
    if subject.run is None or subject.run.recipe.data.train != name:
        split = data.whole_split(name, split)
    if not name.startswith("folder:"):
        return data.load(name, split)
    shape = wanted_shape(subject)
    return data.load(name, split, shape=shape if shape[0] in (1, 3) else None)


def _text_feed(dataset: Examples[Any], subject: Subject) -> Feed:
    if subject.run is None:
        raise ValueError(f"{subject.name} does not say how to read sentences; give a run folder")
    from torchcaps.lab.text import make_feed  # language models are heavy to import

    assert isinstance(dataset, TextDataset)
    return make_feed(dataset, subject.run.recipe)


def _check_shape(subject: Subject, feed: Feed, name: str) -> None:
    got, takes = tuple(feed.batch(torch.arange(1)).inputs[0].shape[1:]), subject.takes
    fits = len(got) == len(takes) and all(want in (None, size) for size, want in zip(got, takes, strict=True))
    if not fits:
        raise DataError(
            f"{name}: inputs of {_size(got)} after the preparation of {subject.name}, which takes {_size(takes)}; "
            "bring the images to that size and those channels, or train on such data"
        )


def _with_classes(subject: Subject, feed: Feed, name: str) -> tuple[Feed, str]:
    """By name where all names are known to the model; by number where one of the two has no names. Data whose names
    are others are refused: numbers alone would call each class by another's name."""
    known = subject.classes
    if known is not None and set(feed.classes) <= set(known):
        return (feed, "") if feed.classes == known else (Renumbered(feed, known), "")
    count = class_count(subject)
    if len(feed.classes) != count:
        raise DataError(
            f"{name}: {len(feed.classes)} classes ({_some(feed.classes)}), but {subject.name} tells {count} apart"
            + (f" ({_some(known)})" if known else "")
            + "; name the classes alike, or train on this data"
        )
    if known is None:
        return feed, ""
    if not _only_numbered(known) and not _only_numbered(feed.classes):
        raise DataError(
            f"{describe_difference(known, feed.classes, name)}; name the classes of the data as the model does, or "
            "train on this data"
        )
    return feed, f"classes are matched by number: {feed.classes[0]} of {name} is {known[0]} of the model, …"


def _only_numbered(classes: Sequence[str]) -> bool:
    """Whether classes have no names of their own."""
    return list(classes) == [str(number) for number in range(len(classes))]


def class_count(subject: Subject) -> int:
    """How many classes the model tells apart."""
    if subject.classes is not None:
        return len(subject.classes)
    if subject.model.origin is not None and hasattr(subject.model.origin.config, "classes"):
        return int(subject.model.origin.config.classes)
    with torch.inference_mode():
        return subject.model(torch.zeros(1, *subject.model.image, device=device_of(subject.model))).logits.shape[-1]


def _size(shape: Sequence[int | None]) -> str:
    return "×".join("any" if size is None else str(size) for size in shape)


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
