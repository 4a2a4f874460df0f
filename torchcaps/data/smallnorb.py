"""smallNORB: 24,300 + 24,300 stereo pairs of 96×96, 50 toys of 5 categories, in NORB's binary matrix format.

Each split is three files: ``dat`` (images), ``cat`` (category), ``info`` (instance, elevation, azimuth, lighting);
gzip or plain. LeCun, Huang, Bottou, "Learning Methods for Generic Object Recognition" (CVPR 2004).
"""

import math
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, verify_published
from torchcaps.data.files import expect_end, first_of, is_packed, missing, opened, read_exactly, reading
from torchcaps.data.viewpoints import IMAGES, single_views, split_of_pairs

CLASSES = ("animal", "human", "airplane", "truck", "car")
METADATA = ("instance", "elevation", "azimuth", "lighting")  # as in the file: azimuths are 0, 2, … 34, in units of 10°
SITE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"
STEM = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
LIMIT = 1 << 30  # above the 448 MB of the images
BYTE, INT = 0x1E3D4C55, 0x1E3D4C54  # the format's marks of matrices of bytes and of whole numbers

# Bytes and SHA-256 of the .gz files.
_PUBLISHED = {
    ("train", "dat"): (131_896_188, "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873"),
    ("train", "cat"): (348, "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa"),
    ("train", "info"): (71_052, "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32"),
    ("test", "dat"): (130_799_817, "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474"),
    ("test", "cat"): (347, "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff"),
    ("test", "info"): (10_428, "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2"),
}


def _file(split: str, kind: str) -> str:
    return f"{STEM[split]}-{kind}.mat"


def read_matrix(path: Path, mark: int, axes: int) -> np.ndarray:
    """A matrix of bytes or of whole numbers: mapped into memory if plain, streamed if gzip."""
    with opened(path, LIMIT) as stream:
        found, count = struct.unpack("<II", read_exactly(stream, 8, path, "header"))
        if found != mark or count != axes:
            raise DataError(
                f"{path}: starts with {found:08x} and {count} axes, not {mark:08x} and {axes} as this NORB matrix "
                "does; it is another file, or a broken one"
            )
        # The format always stores at least three sizes.
        stored = max(axes, 3)
        shape = struct.unpack(f"<{stored}I", read_exactly(stream, 4 * stored, path, "sizes"))[:axes]
        dtype = np.dtype("u1" if mark == BYTE else "<i4")
        size = math.prod(shape) * dtype.itemsize
        if not 0 < size <= LIMIT:
            raise DataError(f"{path}: its header claims {'×'.join(map(str, shape))} values, above {LIMIT:,} bytes")
        if is_packed(path):
            data = read_exactly(stream, size, path, "values")
            expect_end(stream, path, "values")
            return np.frombuffer(data, dtype=dtype).reshape(shape)
    start = 8 + 4 * stored
    if path.stat().st_size != start + size:
        raise DataError(f"{path}: is {path.stat().st_size:,} bytes, not the {start + size:,} that its header says")
    with reading(path):
        # Copy-on-write, because torch wants memory that may be written to.
        return np.memmap(path, dtype=dtype, mode="c", offset=start, shape=shape)


def read(dat: Path, cat: Path, info: Path, split: str) -> ArrayDataset:
    """Any files of the format, published or not: stereo pairs as two channels, with their metadata."""
    images = read_matrix(dat, BYTE, 4)
    labels = read_matrix(cat, INT, 1)
    facts = read_matrix(info, INT, 2)
    if images.shape[1] != 2:
        raise DataError(f"{dat}: {images.shape[1]} images for each object, not a pair")
    if len(labels) != len(images) or facts.shape != (len(images), len(METADATA)):
        raise DataError(
            f"{dat}: {len(images)} pairs, but {len(labels)} labels in {cat.name} and {facts.shape} facts in {info.name}"
        )
    if labels.min() < 0 or labels.max() >= len(CLASSES):
        raise DataError(f"{cat}: labels from {labels.min()} to {labels.max()}; categories are 0 to {len(CLASSES) - 1}")
    metadata = {key: torch.from_numpy(facts[:, column].astype(np.int64)) for column, key in enumerate(METADATA)}
    label = torch.from_numpy(labels.astype(np.int64))
    return ArrayDataset("smallnorb", split, CLASSES, torch.from_numpy(images), label, metadata)


def locate(split: str, root: Path) -> tuple[Path, ...]:
    found = []
    for kind in ("dat", "cat", "info"):
        file = _file(split, kind)
        path = first_of((root / "smallnorb",), (file, f"{file}.gz"))
        if path is None:
            raise missing("smallnorb", split, f"{file} or {file}.gz", root / "smallnorb")
        found.append(path)
    return tuple(found)


def load(split: str, root: Path) -> ArrayDataset:
    dat, cat, info = locate(split, root)
    for path in (dat, cat, info):
        verify_published(path, root / "smallnorb", SOURCE.sums, "smallnorb")
    return read(dat, cat, info, split)


SOURCE = DownloadSource(
    "smallnorb",
    tuple(
        RemoteFile(
            f"{_file(split, kind)}.gz",
            (f"{SITE}{_file(split, kind)}.gz",),
            size,
            digest,
            yields=(_file(split, kind),),
            unpacked_limit=LIMIT,
        )
        for (split, kind), (size, digest) in _PUBLISHED.items()
    ),
    locate,
)
SMALLNORB = DatasetEntry(
    "stereo pairs of toys in 5 categories, 96×96 gray",
    load,
    {"train": 24_300, "test": 24_300},
    "research use, not to be sold; cite LeCun, Huang, Bottou 2004",
    SOURCE,
)

# The same files, in other splits.
_VIEWS = replace(SOURCE, locate=lambda split, root: locate(split_of_pairs(split), root))
SMALLNORB_AZIMUTH = DatasetEntry(
    "single images of smallnorb, trained on a third of the azimuths, tested on the others",
    single_views(load, "azimuth", "smallnorb_azimuth"),
    IMAGES,
    SMALLNORB.terms,
    _VIEWS,
)
SMALLNORB_ELEVATION = DatasetEntry(
    "single images of smallnorb, trained on the three lowest of nine elevations, tested on the others",
    single_views(load, "elevation", "smallnorb_elevation"),
    IMAGES,
    SMALLNORB.terms,
    _VIEWS,
)
