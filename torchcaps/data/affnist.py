"""affNIST: MNIST digits under random affine transformations, 40×40, 32 versions of each, in .mat files.

Tijmen Tieleman, https://www.cs.toronto.edu/~tijmen/affNIST/. Training digits are 50,000 of MNIST's 60,000, validation
the other 10,000. Where the real files are missing, the generator ``affine_mnist`` draws from the same ranges.
"""

from pathlib import Path

import numpy as np
import torch

from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile
from torchcaps.data.matfile import read_mat

SITE = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/"
LIMIT = 1 << 30  # of one file, above the 512 MB of test.mat
UNPACKED_LIMIT = 8 << 30  # of an archive, above the 2.6 GB of the training batches
DIGITS = tuple("0123456789")
SIDE = 40
FOLDER = {"train": "training_batches", "validation": "validation_batches", "test": "test_batches"}
FIELDS = ("image", "label_int", "human_readable_transform")
BATCHES = 32

# Bytes and SHA-256 of the archives.
_PUBLISHED = {
    "train": (608_848_875, "b6aa79e6d659111ff4c704c241cc86b828e468a5d6f7a1c5b888e6a3af3b3963"),
    "validation": (121_890_491, "c613d7718fd93f1fb2f6a90cc18b97f6ec2b76929559374f79aa7081bdfd358c"),
    "test": (121_959_509, "83f829c01c021fa731e062e7671b0075a3e8de0a511fb6b5d403458528d0e0d1"),
}


def read(paths: tuple[Path, ...], split: str) -> ArrayDataset:
    """One dataset from batch files, one file in memory at a time; each is a structure ``affNISTdata``."""
    images, labels, transforms = bytearray(), [], []
    for path in paths:
        image, label, transform = _read_batch(path)
        images += image.T.tobytes()  # (1600, n) in the file, an image in each column
        labels.append(label)
        transforms.append(transform)
    pixels = torch.from_numpy(np.frombuffer(images, dtype=np.uint8).reshape(-1, 1, SIDE, SIDE))
    metadata = {}
    if all(transform is not None and len(transform) == len(transforms[0]) for transform in transforms):
        # Rotation, shear, two scales and two translations, as the author lists them.
        metadata["transform"] = torch.from_numpy(np.concatenate(transforms, axis=1).T.astype(np.float32))
    return ArrayDataset("affnist", split, DIGITS, pixels, torch.from_numpy(np.concatenate(labels)), metadata)


def _read_batch(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    arrays = read_mat(path, LIMIT, wanted=FIELDS.__contains__)
    data = arrays.get("affNISTdata")
    if not isinstance(data, dict) or not {"image", "label_int"} <= data.keys():
        raise DataError(f"{path}: holds {sorted(arrays)}, not the structure affNISTdata with image and label_int")
    image, label, transform = (data.get(field) for field in FIELDS)
    assert isinstance(image, np.ndarray)
    assert isinstance(label, np.ndarray)
    if image.ndim != 2 or image.dtype != np.uint8 or image.shape[0] != SIDE * SIDE or not image.shape[1]:
        raise DataError(f"{path}: image is {image.dtype} {image.shape}, not uint8 ({SIDE * SIDE}, n)")
    if label.size != image.shape[1] or not np.isin(label, range(10)).all():
        raise DataError(f"{path}: label_int is not {image.shape[1]} labels from 0 to 9")
    if not isinstance(transform, np.ndarray) or transform.ndim != 2 or transform.shape[1] != image.shape[1]:
        transform = None
    return image, label.reshape(-1).astype(np.int64), transform


def locate(split: str, root: Path) -> tuple[Path, ...]:
    directory = root / "affnist"
    batches = tuple(directory / FOLDER[split] / f"{batch}.mat" for batch in range(1, BATCHES + 1))
    absent = [path for path in batches if not path.is_file()]
    whole = directory / f"{split}.mat"
    if not absent:
        return batches
    if not whole.is_file():
        raise DataError(
            f"affnist/{split}: neither {whole.name} nor all of {FOLDER[split]}/1.mat to {BATCHES}.mat in {directory} "
            f"({len(absent)} are missing); run `torchcaps data fetch affnist`, or use the generated `affine_mnist`"
        )
    return (whole,)


def load(split: str, root: Path) -> ArrayDataset:
    return read(locate(split, root), split)


SOURCE = DownloadSource(
    "affnist",
    tuple(
        RemoteFile(
            f"{FOLDER[split]}.zip",
            (f"{SITE}{FOLDER[split]}.zip",),
            size,
            digest,
            yields=tuple(f"{FOLDER[split]}/{batch}.mat" for batch in range(1, BATCHES + 1)),
            unpacked_limit=UNPACKED_LIMIT,
        )
        for split, (size, digest) in _PUBLISHED.items()
    ),
    locate,
)
AFFNIST = DatasetEntry(
    "MNIST digits under affine transformations, 40×40 gray",
    load,
    {"train": 1_600_000, "validation": 320_000, "test": 320_000},
    "free, without restrictions (Tieleman); derived from MNIST",
    SOURCE,
)
