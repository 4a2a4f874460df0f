"""What the generated digit datasets share: a source of small gray images, and numbers drawn by example index."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from torchcaps.data.base import ArrayDataset, DataError, Dataset
from torchcaps.data.catalog import DatasetEntry
from torchcaps.data.counter import Counter
from torchcaps.data.transforms import crop

DIGIT = 28
"""The side of a source image, in pixels."""
_EPOCHS = 1 << 20  # a stream of random numbers that no dataset uses


class GeneratedDigits(Dataset):
    """Examples made from a source of gray 28×28 images with one class each: MNIST, Fashion-MNIST, or their like.

    Example ``k`` starts from source image ``k % len(source)``, so every stretch of ``len(source)`` examples uses each
    image once. All that is random about it is drawn from ``(seed, k)``. The name says what it is made from, and that it
    is generated, wherever a number measured on it is shown.
    """

    redrawn: ClassVar[bool] = False
    """Whether training draws the examples anew in each epoch: where the dataset is as large as its source."""

    def __init__(self, name: str, source: Dataset, length: int, seed: int) -> None:
        self.name, self.split, self.classes = f"{name}:{source.name} (generated)", source.split, source.classes
        self.pixels, self.labels = _source_arrays(name, source)
        if length < 1:
            raise ValueError(f"{name} needs a length of at least 1; got {length}")
        self.seed, self.draws = seed, Counter(seed)
        self.length = length

    def at_epoch(self, epoch: int) -> "GeneratedDigits":
        """The dataset itself in epoch 0; after that, if it is ``redrawn``, with numbers of (seed, epoch, index)."""
        if epoch == 0 or not self.redrawn:
            return self
        later = copy.copy(self)
        later.draws = Counter(int(Counter(self.seed).bits(torch.tensor(epoch), _EPOCHS)))
        return later

    def __len__(self) -> int:
        return self.length

    def _check(self, indices: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """The indices, on the source's device, if there are such examples."""
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.length:
            raise IndexError(
                f"{self.name}/{self.split} has examples 0 to {self.length - 1}; "
                f"got indices {int(indices.min())} to {int(indices.max())}"
            )
        return indices.to(self.pixels.device, torch.int64)

    def _shifts(self, indices: Int[Tensor, "n"], reach: int, stream: int) -> Int[Tensor, "n 2"]:
        """How far each example moves, in rows and columns: even over −reach to reach. Uses two streams."""
        drawn = [self.draws.below(indices, stream + axis, 2 * reach + 1) for axis in (0, 1)]
        return torch.stack(drawn, dim=-1) - reach


@dataclass(frozen=True)
class GeneratorEntry:
    """A generated dataset before it is known what it is made from: ``NAME:SOURCE`` makes it from SOURCE.

    Args:
        name: name of the dataset.
        about: what it is, in a line.
        build: a function from a source to the dataset.
        per_image: examples made of each source image, by split.
    """

    name: str
    about: str
    build: Callable[[Dataset], GeneratedDigits]
    per_image: Mapping[str, int]  # examples made of each source image, by split

    def entry(self, needs: str, source: DatasetEntry) -> DatasetEntry:
        """What is known of the dataset once its source is.

        Args:
            needs: name of the source.
            source: entry of the source.

        Returns:
            The entry.
        """

        def load(split: str, root: Path) -> GeneratedDigits:
            try:
                if source.source is not None:
                    source.source.locate(split, root)
            except DataError as error:
                raise DataError(f"{error}; `{self.name}:mnist_sample` is the same made from what ships") from error
            images = source.load(split, root)
            assert isinstance(images, Dataset)
            return self.build(images)

        counts = {split: source.counts[split] * times for split, times in self.per_image.items()}
        return DatasetEntry(f"{self.about}, from {needs}", load, counts, source.terms, needs=needs)


def _source_arrays(name: str, source: Dataset) -> tuple[UInt8[Tensor, "n 28 28"], Int[Tensor, "n"]]:
    """The source's images and labels, whole; the bytes of an ArrayDataset are used where they lie."""
    if len(source) == 0:
        raise DataError(f"{name} needs source images; {source.name}/{source.split} has none")
    first = source.batch(torch.arange(1))
    if tuple(first.image.shape[1:]) != (1, DIGIT, DIGIT):
        channels, rows, columns = first.image.shape[1:]
        raise DataError(
            f"{name} is made from gray {DIGIT}×{DIGIT} images, such as MNIST's or Fashion-MNIST's; "
            f"{source.name}/{source.split} has {channels} channel(s) of {rows}×{columns}"
        )
    if first.label.ndim != 1:
        raise DataError(
            f"{name} is made from images with one class number each; "
            f"{source.name}/{source.split} has label rows of {first.label.shape[1]} numbers"
        )
    plain = type(source).batch is ArrayDataset.batch  # a subclass may change what its arrays mean
    if isinstance(source, ArrayDataset) and plain and source.images.dtype == torch.uint8:
        images, labels = source.images, source.labels
    else:
        parts = [source.batch(block) for block in torch.arange(len(source)).split(4096)]
        images = torch.cat([(part.image * 255.0).round().to(torch.uint8) for part in parts])
        labels = torch.cat([part.label for part in parts])
    labels = labels.to(torch.int64)
    if not 0 <= int(labels.min()) <= int(labels.max()) < len(source.classes):
        raise DataError(
            f"{source.name}/{source.split} names {len(source.classes)} classes but has labels from "
            f"{int(labels.min())} to {int(labels.max())}"
        )
    return images[:, 0], labels


def place(
    pixels: UInt8[Tensor, "n row column"], shift: Int[Tensor, "n 2"], reach: int, size: int
) -> UInt8[Tensor, "n size size"]:
    """Each image in the middle of a black square of ``size``, moved by its shift (at most ``reach``) and cut there."""
    # A window into a generous black frame: the window moves one way, so the picture moves the other.
    margin = (size - pixels.shape[-1]) // 2 + reach
    framed = torch.nn.functional.pad(pixels[:, None], [margin] * 4)
    return crop(framed, reach - shift[:, 0], reach - shift[:, 1], (size, size))[:, 0]


def unit(pixels: UInt8[Tensor, "*n"]) -> Tensor:
    """Bytes as floats from 0 to 1."""
    return pixels.to(torch.float32) / 255.0
