"""A user's own arrays: ``arrays:FILE.npz`` with images and labels, and any further arrays as metadata.

``train_images`` and ``train_labels`` (``test_…``) give the splits ``train`` and ``test``; plain ``images`` and
``labels`` give the one split ``all``. Images are bytes, or floats from 0 to 1: (n, row, column) or (n, channel, row,
column). ``classes``, if there, names the labels. Pickled objects are refused, never executed.
"""

import math
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.archives import Member, members
from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.files import read_exactly

LIMIT = 16 << 30
DTYPE = re.compile(r"[<>|=]?([biuf][1248]|U\d{1,3})")
FIELD = {
    "descr": re.compile(r"'descr' *: *'([^']*)'"),
    "fortran_order": re.compile(r"'fortran_order' *: *(True|False)"),
    "shape": re.compile(r"'shape' *: *\(([0-9, ]*)\)"),
}
HEADER = 4096  # characters; numpy writes about a hundred


def read_npz(path: Path, wanted: str = "") -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name, those that start with ``wanted``."""
    found: dict[str, np.ndarray] = {}
    for member in members(path, LIMIT):
        name = member.name.removesuffix(".npy")
        if name.startswith(wanted):
            found[name] = _read_npy(path, member)
    return found


def _read_npy(path: Path, member: Member) -> np.ndarray:
    def error(what: str) -> DataError:
        return DataError(f"{path}: {member.name} {what}; write the file with numpy.savez_compressed")

    start = bytes(read_exactly(member.stream, 8, path, member.name))
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise error(f"starts with {start.hex()}, not as a numpy array does")
    width = 2 if start[6] == 1 else 4
    length = struct.unpack("<H" if width == 2 else "<I", read_exactly(member.stream, width, path, member.name))[0]
    if length > HEADER:
        raise error(f"has a header of {length:,} bytes")
    text = bytes(read_exactly(member.stream, length, path, member.name)).decode("latin-1")
    shape, dtype, fortran = _header(text, error)
    size = math.prod(shape) * dtype.itemsize
    if size != member.size - 8 - width - length:
        raise error(f"claims {'×'.join(map(str, shape))} {dtype} in {member.size:,} bytes")
    data = read_exactly(member.stream, size, path, member.name)
    values = np.frombuffer(data, dtype=dtype)
    # One more read, so that the archive's own checksum is compared.
    if member.stream.read(1):
        raise error("goes on after its last value")
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


def _header(text: str, error: Callable[[str], DataError]) -> tuple[tuple[int, ...], np.dtype, bool]:
    # The header is a Python dictionary, but hostile text is not for Python's parser, which may fail in many ways.
    descr, order, sizes = (FIELD[key].search(text) for key in ("descr", "fortran_order", "shape"))
    if descr is None or order is None or sizes is None:
        raise error(f"has the header {text.strip()[:80]!r}, which names no plain type, order and shape")
    if "O" in descr[1]:
        raise error("holds pickled objects, which are never loaded")
    if not DTYPE.fullmatch(descr[1]):
        raise error(f"is of type {descr[1][:40]!r}, not of numbers")
    parts = [size.strip() for size in sizes[1].split(",")]
    parts = parts[:-1] if parts[-1] == "" else parts  # (), (3,)
    if len(parts) > 8 or not all(size.isdigit() for size in parts):
        raise error(f"has the shape ({sizes[1][:60]})")
    try:
        return tuple(map(int, parts)), np.dtype(descr[1]), order[1] == "True"
    except TypeError as broken:
        raise error(f"is of type {descr[1]!r}, which numpy does not know") from broken


def arrays_splits(path: Path) -> tuple[str, ...]:
    """The splits that an .npz file has: ``train`` from ``train_images``, ``all`` from plain ``images``."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; `arrays:FILE.npz` wants a file that numpy.savez_compressed wrote")
    names = [member.name.removesuffix(".npy") for member in members(path, LIMIT)]
    found = [name.removesuffix("images").rstrip("_") or "all" for name in names if re.fullmatch("(.+_)?images", name)]
    if not found:
        raise DataError(f"{path}: no images or train_images; it holds {', '.join(sorted(names)) or 'nothing'}")
    return tuple(found)


def load_arrays(path: Path, split: str) -> ArrayDataset:
    """One split of an .npz file of a user's images and labels."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; `arrays:FILE.npz` wants a file that numpy.savez_compressed wrote")
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
    classes = _classes(path, names, int(labels.max()) + 1 if len(labels) else 0)
    metadata = {
        name: torch.from_numpy(np.array(values.astype(values.dtype.newbyteorder("="))))
        for name, values in arrays.items()
        if values.ndim and len(values) == len(labels) and values.dtype.kind in "biuf"
    }
    return ArrayDataset(f"arrays:{path}", split, classes, images, labels, metadata)


def _images(path: Path, images: np.ndarray) -> torch.Tensor:
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape:
        raise DataError(f"{path}: images of shape {images.shape}; wanted (n, row, column) or (n, channel, row, column)")
    if images.shape[3] in (1, 3) and images.shape[1] > 4:
        raise DataError(f"{path}: images of shape {images.shape} have their channels last; transpose(0, 3, 1, 2) them")
    if images.dtype == np.uint8:
        return torch.from_numpy(images)
    if images.dtype.kind != "f" or not (images.min() >= 0 and images.max() <= 1):
        raise DataError(f"{path}: images of {images.dtype}; wanted uint8, or floats from 0 to 1")
    return torch.from_numpy(images.astype(np.float32))


def _labels(path: Path, labels: np.ndarray) -> torch.Tensor:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < 0 or labels.max() > 65535:
        raise DataError(f"{path}: labels of {labels.dtype} {labels.shape}; wanted whole numbers from 0, one axis")
    return torch.from_numpy(labels.astype(np.int64))


def _classes(path: Path, names: np.ndarray | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(count)))
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) < count:
        raise DataError(f"{path}: classes of {names.dtype} {names.shape}; wanted at least {count} names")
    return tuple(map(str, names))
