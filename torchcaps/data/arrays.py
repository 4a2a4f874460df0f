"""A user's own arrays: ``arrays:FILE.npz`` with images and labels, and any further arrays as metadata.

``train_images`` and ``train_labels`` (``test_…``) give the splits ``train`` and ``test``; plain ``images`` and
``labels`` give ``all``. Without a test split, one in five examples of each class is ``test`` and the others ``train``.
Images are bytes, or floats from 0 to 1: (n, row, column) or (n, channel, row, column). ``classes``, if there, names the
labels. Pickled objects are refused, never executed.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.archives import members
from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.labels import TEST_SHARE, split_off_test
from torchcaps.data.npy import read_npy

LIMIT = 16 << 30


def read_npz(path: Path, wanted: str = "") -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name, those that start with ``wanted``."""
    found: dict[str, np.ndarray] = {}
    for member in members(path, LIMIT):
        name = member.name.removesuffix(".npy")
        if name.startswith(wanted):
            found[name] = read_npy(path, member)
    return found


def arrays_splits(path: Path) -> tuple[str, ...]:
    """The splits that an .npz file has: ``train`` from ``train_images``, ``all`` from plain ``images``; and those that
    are made of it where there is no other."""
    found = _written_splits(path)
    return tuple(dict.fromkeys(("train", "test", *found))) if _lacks_test(found) else found


def _lacks_test(written: tuple[str, ...]) -> bool:
    return written == ("all",) or ("train" in written and "test" not in written)


def _written_splits(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        raise DataError(f"{path}: is a folder; `arrays:FILE.npz` wants a file, and a folder of images is folder:{path}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; `arrays:FILE.npz` wants a file that numpy.savez_compressed wrote")
    names = [member.name.removesuffix(".npy") for member in members(path, LIMIT)]
    found = [name.removesuffix("images").rstrip("_") or "all" for name in names if re.fullmatch("(.+_)?images", name)]
    if not found:
        raise DataError(f"{path}: no images or train_images; it holds {', '.join(sorted(names)) or 'nothing'}")
    return tuple(found)


def load_arrays(path: Path, split: str) -> ArrayDataset:
    """One split of an .npz file of a user's images and labels."""
    written = _written_splits(path)
    if split in ("train", "test") and _lacks_test(written):
        return _part(_read_split(path, "all" if written == ("all",) else "train"), split)
    return _read_split(path, split)


def _read_split(path: Path, split: str) -> ArrayDataset:
    prefix = "" if split == "all" else f"{split}_"
    arrays = {name.removeprefix(prefix): values for name, values in read_npz(path, prefix).items()}
    if "images" not in arrays or "labels" not in arrays:
        inside = sorted(member.name.removesuffix(".npy") for member in members(path, LIMIT))
        raise DataError(
            f"{path}: no {prefix}images and {prefix}labels for split {split!r}; it holds "
            f"{', '.join(inside) or 'nothing'}"
        )
    images, labels = _images(path, arrays.pop("images")), _labels(path, arrays.pop("labels"))
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(images)} images but {len(labels)} labels in split {split!r}")
    names = arrays.pop("classes", None)
    if names is None and prefix:
        names = read_npz(path, "classes").get("classes")
    classes = _classes(path, names, _class_count(path))
    metadata = {
        name: torch.from_numpy(np.array(values.astype(values.dtype.newbyteorder("="))))
        for name, values in arrays.items()
        if values.ndim and len(values) == len(labels) and values.dtype.kind in "biuf"
    }
    return ArrayDataset(f"arrays:{path}", split, classes, images, labels, metadata)


def _part(everything: ArrayDataset, split: str) -> ArrayDataset:
    """What one trains or tests on, where the file has images of no split."""
    train, test = split_off_test(everything.labels, [str(index) for index in range(len(everything))])
    chosen = train if split == "train" else test
    metadata = {key: value[chosen] for key, value in everything.metadata.items()}
    images, labels = everything.images[chosen], everything.labels[chosen]
    part = ArrayDataset(everything.name, split, everything.classes, images, labels, metadata)
    share = f"one in {TEST_SHARE} of each class"
    part.notes = (f"no test_images: {share}, {len(test):,} in all, are for testing and not trained on",)
    return part


def _images(path: Path, images: np.ndarray) -> torch.Tensor:
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape:
        raise DataError(f"{path}: images of shape {images.shape}; wanted (n, row, column) or (n, channel, row, column)")
    if images.shape[3] in (1, 2, 3, 4) and images.shape[1] > 4:
        raise DataError(f"{path}: images of shape {images.shape} have their channels last; transpose(0, 3, 1, 2) them")
    if images.dtype == np.uint8:
        return torch.from_numpy(images)
    if images.dtype.kind == "U":
        raise DataError(f"{path}: images of {images.dtype}, which are words; wanted uint8, or floats from 0 to 1")
    finite = np.isfinite(images).reshape(len(images), -1).all(1)
    if not finite.all():
        count, first = int((~finite).sum()), int(finite.argmin())
        raise DataError(
            f"{path}: {count:,} of {len(images):,} images hold NaN or infinity, the first of them images[{first}]; "
            "wanted floats from 0 to 1: repair or remove them"
        )
    low, high = float(images.min()), float(images.max())
    if images.dtype.kind != "f" or low < 0 or high > 1:
        held = f"{images.dtype} from {low:g} to {high:g}" if images.dtype.kind != "b" else "bool"
        raise DataError(f"{path}: images of {held}; wanted uint8, or floats from 0 to 1: {_remedy(images, low, high)}")
    return torch.from_numpy(images.astype(np.float32))


def _remedy(images: np.ndarray, low: float, high: float) -> str:
    if images.dtype.kind == "b":
        return "images.astype(float)"
    if images.dtype.kind == "u":
        return f"images / {np.iinfo(images.dtype).max}"
    if low < 0 or high > 255:
        return f"(images - {low:g}) / {high - low:g}, or whatever black and white are"
    return "images / 255" if images.dtype.kind == "f" else "images.astype(np.uint8)"


def _labels(path: Path, labels: np.ndarray) -> torch.Tensor:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < 0 or labels.max() > 65535:
        raise DataError(f"{path}: labels of {labels.dtype} {labels.shape}; wanted whole numbers from 0, one axis")
    return torch.from_numpy(labels.astype(np.int64))


def _class_count(path: Path) -> int:
    """One more than the largest label of any split: every split must number the same classes."""
    prefixes = ["" if split == "all" else f"{split}_" for split in _written_splits(path)]
    found = [read_npz(path, f"{prefix}labels").get(f"{prefix}labels") for prefix in prefixes]
    return max(int(_labels(path, labels).max()) + 1 for labels in found if labels is not None)


def _classes(path: Path, names: np.ndarray | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(count)))
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) < count:
        raise DataError(f"{path}: classes of {names.dtype} {names.shape}; wanted at least {count} names")
    # Numbers beyond Unicode would break Python itself, and control characters the terminal that shows a class.
    codes = np.ascontiguousarray(names).view(np.dtype("u4").newbyteorder(names.dtype.byteorder))
    words = tuple(map(str, names)) if codes.max(initial=0) <= sys.maxunicode else ()
    if not words or not all(word.isprintable() for word in words):
        raise DataError(f"{path}: classes holds characters that no text has; wanted names that can be printed")
    if twice := [word for word, count in Counter(words).items() if count > 1]:
        raise DataError(f"{path}: classes names {twice[0]!r} more than once; wanted a name for each")
    return words
