"""Datasets by name: ``load("mnist_sample", "train")``.

Every dataset of the library is a line of ``DATASETS``. ``folder:PATH`` and ``arrays:FILE.npz`` are the user's own.
Generated datasets (``RECIPES``) are made from MNIST, or as ``NAME:SOURCE`` from another source: the sample that ships
(``multimnist:mnist_sample``), Fashion-MNIST, or the user's own (``affine_mnist:arrays:FILE.npz``).
Loading never downloads: ``torchcaps data fetch NAME`` does.
"""

import os
from pathlib import Path
from typing import Any, Literal, overload

from torchcaps.data.affnist import AFFNIST
from torchcaps.data.arrays import arrays_splits, load_arrays
from torchcaps.data.base import ArrayDataset, Batch, DataError, Dataset, Examples
from torchcaps.data.catalog import DatasetEntry
from torchcaps.data.cifar import CIFAR10, CIFAR100
from torchcaps.data.coil20 import COIL20
from torchcaps.data.files import data_dir
from torchcaps.data.folder import FolderDataset, folder_splits
from torchcaps.data.generated import DIGIT, GeneratorEntry
from torchcaps.data.mnist import FASHION_MNIST, MNIST
from torchcaps.data.multimnist import DIVERSE_MULTIMNIST, MULTIMNIST
from torchcaps.data.sample import MNIST_SAMPLE
from torchcaps.data.smallnorb import SMALLNORB, SMALLNORB_AZIMUTH, SMALLNORB_ELEVATION
from torchcaps.data.sst import SST2, SST2_PHRASES, SST5, SST5_PHRASES
from torchcaps.data.svhn import SVHN
from torchcaps.data.text import TextBatch, TextDataset
from torchcaps.data.toys import TOYS
from torchcaps.data.toys.dataset import TOYS_AZIMUTH, TOYS_ELEVATION, TOYS_NOVEL, TOYS_VAL
from torchcaps.data.transformed_mnist import AFFINE_MNIST, SHIFTED_MNIST, TRANSLATED_MNIST

__all__ = [
    "DATASETS",
    "RECIPES",
    "ArrayDataset",
    "Batch",
    "DataError",
    "Dataset",
    "DatasetEntry",
    "GeneratorEntry",
    "TextBatch",
    "TextDataset",
    "data_dir",
    "entry",
    "list",
    "load",
    "splits",
]

DATASETS: dict[str, DatasetEntry] = {
    # ships with the package
    "mnist_sample": MNIST_SAMPLE,
    # read from published files
    "mnist": MNIST,
    "fashion_mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
    "smallnorb": SMALLNORB,
    "smallnorb_azimuth": SMALLNORB_AZIMUTH,
    "smallnorb_elevation": SMALLNORB_ELEVATION,
    "affnist": AFFNIST,
    "coil20": COIL20,
    # read from published files, text
    "sst5": SST5,
    "sst2": SST2,
    "sst5_phrases": SST5_PHRASES,
    "sst2_phrases": SST2_PHRASES,
    # generated on the fly from MNIST; NAME:SOURCE makes them from another source
    "multimnist": MULTIMNIST.entry("mnist", MNIST),
    "diverse_multimnist": DIVERSE_MULTIMNIST.entry("mnist", MNIST),
    "translated_mnist": TRANSLATED_MNIST.entry("mnist", MNIST),
    "shifted_mnist": SHIFTED_MNIST.entry("mnist", MNIST),
    "affine_mnist": AFFINE_MNIST.entry("mnist", MNIST),
    # rendered on first use, then kept on disk
    "toys": TOYS,
    "toys_novel": TOYS_NOVEL,
    "toys_azimuth": TOYS_AZIMUTH,
    "toys_elevation": TOYS_ELEVATION,
    "toys_val": TOYS_VAL,
}

RECIPES: dict[str, GeneratorEntry] = {
    recipe.name: recipe for recipe in (MULTIMNIST, DIVERSE_MULTIMNIST, TRANSLATED_MNIST, SHIFTED_MNIST, AFFINE_MNIST)
}
SOURCES = ("mnist", "mnist_sample", "fashion_mnist")
"""What generated datasets can be made from, besides the user's own: gray images of 28×28."""

TextName = Literal["sst5", "sst2", "sst5_phrases", "sst2_phrases"]
Shape = tuple[int, int, int]
Root = str | os.PathLike[str] | None


def list_datasets() -> tuple[str, ...]:
    """The names that ``load`` knows, besides ``folder:PATH``, ``arrays:FILE.npz`` and ``NAME:SOURCE``.

    Returns:
        Names of datasets.

    Example:
        >>> "mnist_sample" in list_datasets()
        True
    """
    return tuple(DATASETS)


list = list_datasets  # the public name; nothing inside is called so


def entry(name: str) -> DatasetEntry:
    """What is known of a dataset: its splits, its source, its terms. Nothing is known of a user's own.

    Args:
        name: name of the dataset.

    Returns:
        Its entry.

    Example:
        >>> entry("multimnist:mnist_sample").counts["test"]
        1000000
    """
    if name in DATASETS:
        return DATASETS[name]
    made, colon, source = name.partition(":")
    if colon and made in RECIPES:
        if source not in SOURCES:
            raise DataError(
                f"{made} is made from gray 28×28 images, not from {source!r}; {made}:SOURCE takes the sources "
                f"{', '.join(SOURCES)}, folder:PATH and arrays:FILE.npz"
            )
        return RECIPES[made].entry(source, DATASETS[source])
    place = Path(name).expanduser()
    if place.is_dir() or place.suffix == ".npz":
        kind = "folder" if place.is_dir() else "arrays"
        raise DataError(f"no dataset {name!r}; for your own {'images' if place.is_dir() else kind} write {kind}:{name}")
    raise DataError(
        f"no dataset {name!r}; there are {', '.join(DATASETS)}, folder:PATH and arrays:FILE.npz, and generated ones "
        "from another source than MNIST, such as multimnist:mnist_sample"
    )


def is_own(name: str) -> bool:
    """Whether a name leads to a user's own files, of which the library knows nothing beforehand."""
    kind, colon, rest = name.partition(":")
    return bool(colon) and (kind in ("folder", "arrays") or (kind in RECIPES and is_own(rest)))


def splits(name: str) -> tuple[str, ...]:
    """The splits of a dataset; for a user's own files, those that are there.

    Args:
        name: name of the dataset.

    Returns:
        Names of splits.

    Example:
        >>> splits("mnist_sample")
        ('train', 'test')
    """
    if not is_own(name):
        return entry(name).splits
    kind, _, rest = name.partition(":")
    if kind in RECIPES:
        return splits(rest)
    return folder_splits(own_path(name)) if kind == "folder" else arrays_splits(own_path(name))


def whole_split(name: str, split: str) -> str:
    """The split to load of data that are all for one purpose: ``all`` of a user's own that have no splits."""
    return "all" if is_own(name) and "all" in splits(name) else split


def own_path(name: str) -> Path:
    """The path that ``folder:PATH`` or ``arrays:FILE.npz`` names."""
    kind, _, path = name.partition(":")
    if not path:
        raise DataError(f"{name!r} names no path; write {kind}:{'PATH' if kind == 'folder' else 'FILE.npz'}")
    return Path(path).expanduser()


# A text name gives text; the second signature also takes names that are only known when the program runs.
@overload
def load(name: TextName, split: str, root: Root = None, shape: Shape | None = None) -> TextDataset: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def load(name: str, split: str, root: Root = None, shape: Shape | None = None) -> Dataset: ...
def load(name: str, split: str, root: Root = None, shape: Shape | None = None) -> Examples[Any]:
    """One split of a dataset; loading never downloads.

    Args:
        name: name of the dataset.
        split: name of the split.
        root: the data directory (see ``data_dir``).
        shape: 1 or 3 channels, rows and columns that images of a folder are read at; others have theirs.

    Returns:
        The dataset: numbered examples, in batches.

    Example:
        >>> load("mnist_sample", "test")[0].image.shape
        torch.Size([1, 28, 28])
    """
    if is_own(name):
        kind, _, rest = name.partition(":")
        if kind in RECIPES:
            return RECIPES[kind].build(load(rest, split, root, (1, DIGIT, DIGIT)))
        return FolderDataset(own_path(name), split, shape) if kind == "folder" else load_arrays(own_path(name), split)
    known = entry(name)
    if split not in known.splits:
        raise DataError(f"{name} has no split {split!r}; it has {', '.join(known.splits)}")
    return known.load(split, data_dir(root))
