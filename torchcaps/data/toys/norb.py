"""Write pictures in smallNORB's own format: three files, dat (images), cat (categories) and info (metadata).

Each file is little-endian: a magic number for the type, the number of dimensions, the dimensions (never fewer than
three are stored; missing ones are 1) and the array itself, last index fastest.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.base import ArrayDataset
from torchcaps.files import replace_file

MAGIC_BYTE, MAGIC_INT = 0x1E3D4C55, 0x1E3D4C54
STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
_BLOCK = 500  # pairs written at a time


def write_norb(dataset: ArrayDataset, folder: str | Path) -> dict[str, Path]:
    """Write the split's dat, cat and info files under their official names; returns where each is.

    ``dataset`` has byte images (n, 2, row, column), and instance, elevation, azimuth and lighting as metadata.
    """
    if dataset.split not in STEMS:
        raise ValueError(f"smallNORB has the splits {' and '.join(STEMS)}; got {dataset.split!r}")
    images = dataset.images
    if images.ndim != 4 or images.shape[1] != 2 or images.dtype != torch.uint8:
        raise ValueError(f"stereo pairs are uint8 (n, 2, row, column); got {images.dtype} of {tuple(images.shape)}")
    columns = ("instance", "elevation", "azimuth", "lighting")
    missing = [key for key in columns if key not in dataset.metadata]
    if missing:
        raise ValueError(f"smallNORB's info file needs {', '.join(columns)}; there is no {', '.join(missing)}")
    info = torch.stack([dataset.metadata[key] for key in columns], dim=1)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {kind: folder / f"{STEMS[dataset.split]}-{kind}.mat" for kind in ("dat", "cat", "info")}
    blocks = (images[start : start + _BLOCK].numpy().tobytes() for start in range(0, len(images), _BLOCK))
    _write(files["dat"], MAGIC_BYTE, tuple(images.shape), blocks)
    _write(files["cat"], MAGIC_INT, (len(dataset),), iter([_integers(dataset.labels)]))
    _write(files["info"], MAGIC_INT, tuple(info.shape), iter([_integers(info)]))
    return files


def _integers(values: torch.Tensor) -> bytes:
    return values.numpy().astype(np.dtype("<i4")).tobytes()


def _write(file: Path, magic: int, shape: tuple[int, ...], blocks: Iterator[bytes]) -> None:
    """Header and blocks, under the file's name only once all of it is there."""
    with replace_file(file) as stream:
        stored = (*shape, *[1] * (3 - len(shape)))
        stream.write(struct.pack(f"<{2 + len(stored)}i", magic, len(shape), *stored))
        stream.writelines(blocks)
