"""Text beside images: sentences as words, with the same numbering, splits and class names as image datasets."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import DataError, Examples

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")
"""Files of a user's own texts."""


class TextBatch(NamedTuple):
    """Sentences and what is known of them.

    Args:
        tokens: the words of each sentence.
        label: class numbers.
        metadata: tensors with one row for each sentence.
    """

    tokens: tuple[tuple[str, ...], ...]
    label: Int[Tensor, "n"]
    metadata: dict[str, Tensor]


class TextExample(NamedTuple):
    """One sentence of a text dataset."""

    tokens: tuple[str, ...]
    label: Int[Tensor, ""]
    metadata: dict[str, Tensor]


class TextDataset(Examples[TextBatch]):
    """Numbered sentences of one split: kept as strings with one space between words, split when a batch is asked for.

    Args:
        name: name of the dataset.
        split: name of the split.
        classes: names of the classes.
        sentences: the sentences.
        labels: class numbers.
        metadata: further tensors with one row for each sentence.

    Example:
        >>> two = TextDataset("toy", "train", ("bad", "good"), ["what a film", "dull"], torch.tensor([1, 0]))
        >>> two[0].tokens, two.batch(torch.tensor([1])).metadata["length"]
        (('what', 'a', 'film'), tensor([1]))
    """

    def __init__(
        self,
        name: str,
        split: str,
        classes: tuple[str, ...],
        sentences: list[str],
        labels: Int[Tensor, "n"],
        metadata: dict[str, Tensor] | None = None,
    ) -> None:
        if len(sentences) != len(labels):
            raise DataError(f"{name}/{split}: {len(sentences)} sentences but {len(labels)} labels")
        self.name, self.split, self.classes = name, split, classes
        self.sentences, self.labels = sentences, labels
        words = torch.tensor([sentence.count(" ") + 1 for sentence in sentences], dtype=torch.int64)
        self.metadata = {"length": words, **(metadata or {})}

    def __len__(self) -> int:
        return len(self.sentences)

    def batch(self, indices: Int[Tensor, "n"]) -> TextBatch:
        """The examples of these indices, in their order.

        Args:
            indices: numbers of examples.

        Returns:
            One batch.
        """
        tokens = tuple(tuple(self.sentences[index].split(" ")) for index in indices.tolist())
        return TextBatch(tokens, self.labels[indices], {key: value[indices] for key, value in self.metadata.items()})

    def __getitem__(self, index: int) -> TextExample:
        """One sentence, its label and its metadata."""
        one = self._single(index)
        return TextExample(one.tokens[0], one.label[0], {key: value[0] for key, value in one.metadata.items()})
