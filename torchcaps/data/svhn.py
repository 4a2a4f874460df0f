"""Street View House Numbers, cropped digits: 73,257 + 26,032 (+ 531,131 extra) color images of 32×32 in .mat files.

Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning" (2011).
"""

from pathlib import Path

import numpy as np
import torch

from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, verify_published
from torchcaps.data.files import first_of, missing
from torchcaps.data.matfile import read_mat

SITES = ("https://ufldl.stanford.edu/housenumbers/", "http://ufldl.stanford.edu/housenumbers/")
LIMIT = 2 << 30  # above the 1.6 GB of the extra images
DIGITS = tuple("0123456789")

FILES = (
    RemoteFile(
        "train_32x32.mat",
        tuple(f"{site}train_32x32.mat" for site in SITES),
        182_040_794,
        "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    RemoteFile(
        "test_32x32.mat",
        tuple(f"{site}test_32x32.mat" for site in SITES),
        64_275_384,
        "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
    RemoteFile(
        "extra_32x32.mat",
        tuple(f"{site}extra_32x32.mat" for site in SITES),
        1_329_278_602,
        "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
    ),
)


def read(path: Path, split: str) -> ArrayDataset:
    """Images ``X`` (32, 32, 3, n) and labels ``y`` (n, 1), where the digit 0 is written as 10."""
    arrays = read_mat(path, LIMIT)
    images, labels = arrays.get("X"), arrays.get("y")
    if not isinstance(images, np.ndarray) or not isinstance(labels, np.ndarray):
        raise DataError(f"{path}: holds {sorted(arrays)}, not the arrays X and y of SVHN")
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8 or not images.shape[3]:
        raise DataError(f"{path}: X is {images.dtype} {images.shape}, not uint8 (32, 32, 3, n)")
    if labels.size != images.shape[3] or not np.isin(labels, range(11)).all():
        raise DataError(f"{path}: y is not {images.shape[3]} labels from 1 to 10")
    label = torch.from_numpy(labels.reshape(-1).astype(np.int64) % 10)
    # Axes in memory are (n, channel, column, row): turned without a copy.
    return ArrayDataset("svhn", split, DIGITS, torch.from_numpy(images.transpose(3, 2, 0, 1)), label)


def locate(split: str, root: Path) -> tuple[Path, ...]:
    path = first_of((root / "svhn",), (f"{split}_32x32.mat",))
    if path is None:
        command = "svhn --everything" if split == "extra" else "svhn"
        raise missing("svhn", split, f"{split}_32x32.mat", root / "svhn", command)
    return (path,)


def load(split: str, root: Path) -> ArrayDataset:
    (path,) = locate(split, root)
    verify_published(path, root / "svhn", SOURCE.sums, "svhn")
    return read(path, split)


SOURCE = DownloadSource("svhn", FILES, locate, optional={"extra": "extra_32x32.mat"})
SVHN = DatasetEntry(
    "house numbers, cropped digits, 32×32 color",
    load,
    {"train": 73_257, "test": 26_032, "extra": 531_131},
    "non-commercial use; cite Netzer et al. 2011",
    SOURCE,
)
