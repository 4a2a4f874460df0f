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
from torchcaps.lab.evaluation.subjects import LoadedModel, describe_difference
from torchcaps.lab.loaders import ImageLoader, Loader, ModelBatch, views
from torchcaps.models.base import device_of


class Renumbered:
    """A loader whose classes are some of a model's: labels get the model's numbers."""

    def __init__(self, loader: Loader, classes: Sequence[str]) -> None:
        self.loader, self.classes = loader, tuple(classes)
        self.number = torch.tensor([self.classes.index(name) for name in loader.classes])

    def __len__(self) -> int:
        return len(self.loader)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch:
        return self._with_labels(self.loader.batch(indices, generator))

    def views(self, indices: Int[Tensor, "n"]) -> list[ModelBatch]:
        return [self._with_labels(batch) for batch in views(self.loader, indices)]

    def _with_labels(self, batch: ModelBatch) -> ModelBatch:
        if batch.label.ndim == 1:
            label = self.number[batch.label]
        else:
            label = batch.label.new_zeros(len(batch.label), len(self.classes)).index_copy(1, self.number, batch.label)
        return ModelBatch(batch.inputs, label, label, batch.image)


def open_loader(subject: LoadedModel, name: str = "", split: str = "test") -> tuple[Loader, str, str]:
    """The examples to evaluate on, what to call them, and a remark if there is one to make: the run's own data, or
    those of a name that ``torchcaps.data`` knows."""
    if not name:
        if subject.run is None:
            raise ValueError(f"{subject.name} is a model without a run, so without data; name some with --data")
        chosen = subject.run.recipe.data
        own = (chosen.test or chosen.train) if split == "test" else chosen.train
        loader = subject.run.loader(split)  # pyright: ignore[reportArgumentType]
        _check_shape(subject, loader, own)
        return _with_classes(subject, loader, own)[0], f"{own}/{split}", ""
    dataset = load_split(subject, name, split)
    loader = (
        ImageLoader(dataset, subject.transforms) if isinstance(dataset, Dataset) else _text_loader(dataset, subject)
    )
    _check_shape(subject, loader, name)
    loader, remark = _with_classes(subject, loader, name)
    return loader, f"{name}/{dataset.split}", "; ".join((*dataset.notes, *([remark] if remark else [])))


def load_split(subject: LoadedModel, name: str, split: str) -> Examples[Any]:
    """A split of a dataset. Images of a folder are read as ``torchcaps predict`` reads them; those of a folder without
    splits are all for evaluation, unless the subject was trained on some of them."""
    if subject.run is None or subject.run.recipe.data.train != name:
        split = data.whole_split(name, split)
    if not name.startswith("folder:"):
        return data.load(name, split)
    shape = wanted_shape(subject)
    return data.load(name, split, shape=shape if shape[0] in (1, 3) else None)


def _text_loader(dataset: Examples[Any], subject: LoadedModel) -> Loader:
    if subject.run is None:
        raise ValueError(f"{subject.name} does not say how to read sentences; give a run folder")
    from torchcaps.lab.text import make_loader  # language models are heavy to import

    assert isinstance(dataset, TextDataset)
    return make_loader(dataset, subject.run.recipe)


def _check_shape(subject: LoadedModel, loader: Loader, name: str) -> None:
    got, takes = tuple(loader.batch(torch.arange(1)).inputs[0].shape[1:]), subject.takes
    fits = len(got) == len(takes) and all(want in (None, size) for size, want in zip(got, takes, strict=True))
    if not fits:
        raise DataError(
            f"{name}: inputs of {_size(got)} after the preparation of {subject.name}, which takes {_size(takes)}; "
            "bring the images to that size and those channels, or train on such data"
        )


def _with_classes(subject: LoadedModel, loader: Loader, name: str) -> tuple[Loader, str]:
    """By name where all names are known to the model; by number where one of the two has no names. Data whose names
    are others are refused: numbers alone would call each class by another's name."""
    known = subject.classes
    if known is not None and set(loader.classes) <= set(known):
        return (loader, "") if loader.classes == known else (Renumbered(loader, known), "")
    count = class_count(subject)
    if len(loader.classes) != count:
        raise DataError(
            f"{name}: {len(loader.classes)} classes ({_some(loader.classes)}), but {subject.name} tells {count} apart"
            + (f" ({_some(known)})" if known else "")
            + "; name the classes alike, or train on this data"
        )
    if known is None:
        return loader, ""
    if not _only_numbered(known) and not _only_numbered(loader.classes):
        raise DataError(
            f"{describe_difference(known, loader.classes, name)}; name the classes of the data as the model does, or "
            "train on this data"
        )
    return loader, f"classes are matched by number: {loader.classes[0]} of {name} is {known[0]} of the model, …"


def _only_numbered(classes: Sequence[str]) -> bool:
    """Whether classes have no names of their own."""
    return list(classes) == [str(number) for number in range(len(classes))]


def class_count(subject: LoadedModel) -> int:
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
