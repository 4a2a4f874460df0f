"""What every dataset of the library is: numbered examples that come in batches, with a name and a description.

A dataset answers ``batch(indices)`` for many examples at once (the loop's way, vectorized) and ``dataset[index]`` for
one (a person's way). Nothing is random here: the example behind an index is always the same, generated ones too.
Training takes some generated ones anew in each epoch (``at_epoch``), which is a function of seed, epoch and index.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor


class DataError(ValueError):
    """Something is wrong with data on disk: the message names the file and the remedy."""


class Batch(NamedTuple):
    """Examples and what is known of them.

    Args:
        image: images, float, 0 to 1.
        label: class numbers, or a multi-hot row where several are right.
        metadata: tensors with one row for each example.

    Shape:
        - image: ``(n, channel, row, column)``; label: ``(n,)`` or ``(n, label)``.
    """

    image: Float[Tensor, "n channel row column"]
    label: Int[Tensor, "n"] | Float[Tensor, "n label"]  # class numbers, or a multi-hot row where several are right
    metadata: dict[str, Tensor]


BatchType = TypeVar("BatchType", bound=tuple[Any, ...])


class Examples(ABC, Generic[BatchType]):
    """What image and text datasets share: a name, a split, class names, and numbered examples in batches."""

    name: str
    split: str
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what a user should be told of how the examples were read

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, indices: Int[Tensor, "n"]) -> BatchType:
        """The examples of these indices, in their order.

        Args:
            indices: numbers of examples.

        Returns:
            One batch.
        """

    def _single(self, index: int) -> BatchType:
        """The batch of one example; also counted from the end, as in a list."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.name}/{self.split} has {len(self)} examples; there is no index {index}")
        return self.batch(torch.tensor([index % len(self)]))


class Dataset(Examples[Batch]):
    """Numbered images of one split of one dataset."""

    def at_epoch(self, epoch: int) -> "Dataset":
        """The dataset as training meets it in an epoch: itself, unless its images are drawn anew.

        Args:
            epoch: number of the epoch, counted from 0.

        Returns:
            The dataset of that epoch.
        """
        return self

    def __getitem__(self, index: int) -> Batch:
        """One example, as a batch without its leading axis."""
        one = self._single(index)
        return Batch(one.image[0], one.label[0], {key: value[0] for key, value in one.metadata.items()})


class ArrayDataset(Dataset):
    """Examples held as arrays: images stay bytes until a batch is asked for; float images are taken as they are.

    Args:
        name: name of the dataset.
        split: name of the split.
        classes: names of the classes.
        images: uint8, or float from 0 to 1, of shape ``(n, channel, row, column)``.
        labels: int64 of shape ``(n,)``.
        metadata: further tensors with one row for each example.

    Example:
        >>> two = ArrayDataset("mine", "train", ("a", "b"), torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]))
        >>> two.batch(torch.tensor([1])).label
        tensor([1])
    """

    def __init__(
        self,
        name: str,
        split: str,
        classes: tuple[str, ...],
        images: Tensor,  # uint8, or float from 0 to 1; (n, channel, row, column)
        labels: Tensor,  # int64 (n,)
        metadata: dict[str, Tensor] | None = None,
    ) -> None:
        if len(images) != len(labels):
            raise DataError(f"{name}/{split}: {len(images)} images but {len(labels)} labels")
        self.name, self.split, self.classes = name, split, classes
        self.images, self.labels, self.metadata = images, labels, metadata or {}

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        """The examples of these indices, in their order.

        Args:
            indices: numbers of examples.

        Returns:
            One batch.
        """
        image = self.images[indices]
        image = image.to(torch.float32) / (1.0 if image.is_floating_point() else 255.0)
        return Batch(image, self.labels[indices], {key: value[indices] for key, value in self.metadata.items()})


class SomeExamples(Dataset):
    """Those examples of a dataset that have certain viewpoints, or anything else that metadata tell."""

    def __init__(self, dataset: Dataset, indices: Int[Tensor, "n"], split: str, name: str = "") -> None:
        self.dataset, self.indices = dataset, indices
        self.name, self.split, self.classes = name or dataset.name, split, dataset.classes
        self.notes = dataset.notes

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        return self.dataset.batch(self.indices[indices])

    def at_epoch(self, epoch: int) -> Dataset:
        return SomeExamples(self.dataset.at_epoch(epoch), self.indices, self.split, self.name)


def choose_evenly(count: int, of: int) -> Int[Tensor, "n"]:
    """As many numbers of examples, evenly from the first to the last: sorted datasets show all their classes.

    >>> choose_evenly(3, 9), choose_evenly(5, 2)
    (tensor([0, 4, 8]), tensor([0, 1]))
    """
    count = min(count, of)
    return place_evenly(torch.arange(count), count, of)


def place_evenly(numbers: Int[Tensor, "n"], count: int, of: int) -> Int[Tensor, "n"]:
    """Those of ``choose_evenly(count, of)`` at some places, without making them all. Whole numbers: a float cannot
    count as far as generated datasets are long."""
    return numbers * (of - 1) // max(1, count - 1)
