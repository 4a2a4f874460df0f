"""Datasets by name: ``load("mnist_sample", "train")``.

Every dataset of the library is a line of ``DATASETS``. ``folder:PATH`` and ``arrays:FILE.npz`` are the user's own.
Loading never downloads: ``torchcaps data fetch NAME`` (or ``fetch``) does.
"""

import os
from pathlib import Path
from typing import Any, Literal, overload

from torchcaps.data.affnist import AFFNIST
from torchcaps.data.arrays import load_arrays
from torchcaps.data.base import ArrayDataset, Batch, DataError, Dataset, Examples
from torchcaps.data.catalog import Entry
from torchcaps.data.cifar import CIFAR10, CIFAR100
from torchcaps.data.coil20 import COIL20
from torchcaps.data.files import data_dir
from torchcaps.data.folder import FolderDataset
from torchcaps.data.mnist import FASHION_MNIST, MNIST
from torchcaps.data.sample import MNIST_SAMPLE
from torchcaps.data.smallnorb import SMALLNORB
from torchcaps.data.sst import SST2, SST2_PHRASES, SST5, SST5_PHRASES
from torchcaps.data.svhn import SVHN
from torchcaps.data.text import TextBatch, TextDataset

__all__ = [
    "DATASETS",
    "ArrayDataset",
    "Batch",
    "DataError",
    "Dataset",
    "Entry",
    "TextBatch",
    "TextDataset",
    "data_dir",
    "entry",
    "list",
    "load",
]

DATASETS: dict[str, Entry] = {
    # ships with the package
    "mnist_sample": MNIST_SAMPLE,
    # read from published files
    "mnist": MNIST,
    "fashion_mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
    "smallnorb": SMALLNORB,
    "affnist": AFFNIST,
    "coil20": COIL20,
    # read from published files, text
    "sst5": SST5,
    "sst2": SST2,
    "sst5_phrases": SST5_PHRASES,
    "sst2_phrases": SST2_PHRASES,
    # generated on the fly from MNIST
    # rendered
}

TextName = Literal["sst5", "sst2", "sst5_phrases", "sst2_phrases"]
Root = str | os.PathLike[str] | None


def list() -> tuple[str, ...]:
    """The names that ``load`` knows, besides ``folder:PATH`` and ``arrays:FILE.npz``."""
    return tuple(DATASETS)


def entry(name: str) -> Entry:
    """What is known of a dataset: its splits, its source, its terms."""
    if name not in DATASETS:
        raise DataError(f"no dataset {name!r}; there are {', '.join(DATASETS)}, folder:PATH and arrays:FILE.npz")
    return DATASETS[name]


# A text name gives text; the second signature also takes names that are only known when the program runs.
@overload
def load(name: TextName, split: str, root: Root = None) -> TextDataset: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def load(name: str, split: str, root: Root = None) -> Dataset: ...
def load(name: str, split: str, root: Root = None) -> Examples[Any]:
    """One split of a dataset. ``root`` is the data directory (see ``data_dir``); loading never downloads.

    >>> load("mnist_sample", "test")[0].image.shape
    torch.Size([1, 28, 28])
    """
    kind, colon, path = name.partition(":")
    if colon and kind == "folder":
        return FolderDataset(Path(path).expanduser(), split)
    if colon and kind == "arrays":
        return load_arrays(Path(path).expanduser(), split)
    known = entry(name)
    if split not in known.splits:
        raise DataError(f"{name} has no split {split!r}; it has {', '.join(known.splits)}")
    return known.load(split, data_dir(root))
