"""COIL-20: 20 real objects on a turntable, 72 views each (5° apart), 128×128 gray, from the processed zip.

There is no official split. Here ``train`` is every second view (0°, 10°, …), ``test`` the views between them, ``all``
everything. Nene, Nayar, Murase, "Columbia Object Image Library (COIL-20)" (1996).
"""

import hashlib
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.archives import members
from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile
from torchcaps.data.files import missing, read_exactly
from torchcaps.data.pictures import read_picture

ARCHIVE = "coil-20-proc.zip"
SITE = "https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/"
LIMIT = 64 << 20  # above the 13 MB of the PNG files
OBJECTS, VIEWS, SIDE = 20, 72, 128
# The objects have only numbers; the words are ours, so that pictures and tables can be read.
CLASSES = (
    *("1 duck", "2 wedge", "3 car", "4 cat", "5 box", "6 racing car", "7 tower", "8 powder", "9 carton", "10 jar"),
    *("11 arch", "12 cup", "13 pig", "14 socket", "15 tub", "16 bottle", "17 pot", "18 teacup", "19 cabriolet"),
    "20 cheese",
)
NAME = re.compile(r"(?:.*/)?obj(\d{1,2})__(\d{1,2})\.png")

# Archives of this dataset differ in packing, so the pixels themselves are summed: (object, view, row, column).
PIXELS_SHA256 = "7274cbacb79ea6c57340827c9f9301745a8e9b3173dea4aa828e00b49c42946c"


def read(path: Path, objects: int = OBJECTS, views: int = VIEWS) -> np.ndarray:
    """All pixels of the archive as (object, view, row, column); every view must be there once."""
    pixels = np.zeros((objects, views, SIDE, SIDE), dtype=np.uint8)
    seen = np.zeros((objects, views), dtype=bool)
    for member in members(path, LIMIT):
        match = NAME.fullmatch(member.name)
        if match is None:
            continue
        index = int(match[1]) - 1, int(match[2])
        name = f"{path}: {member.name}"
        if not (0 <= index[0] < objects and index[1] < views) or seen[index]:
            raise DataError(f"{name} is a view too many; objects are 1 to {objects}, views 0 to {views - 1}, each once")
        image = read_picture(bytes(read_exactly(member.stream, member.size, path, member.name)), name, gray=True)
        if image.shape != (1, SIDE, SIDE):
            raise DataError(f"{name} is {image.shape[1]}×{image.shape[2]}, not {SIDE}×{SIDE}")
        pixels[index], seen[index] = image[0], True
    if not seen.all():
        number, view = np.argwhere(~seen)[0]
        raise DataError(
            f"{path}: lacks {int((~seen).sum())} of {seen.size} views, obj{number + 1}__{view}.png among them; it is "
            "not the whole archive: fetch it again"
        )
    return pixels


def inspect(path: Path) -> np.ndarray:
    """The pixels, held to their known SHA-256."""
    pixels = read(path)
    found = hashlib.sha256(pixels.tobytes()).hexdigest()
    if found != PIXELS_SHA256:
        raise DataError(
            f"{path}: SHA-256 {found[:16]}… of its pixels is not COIL-20's {PIXELS_SHA256[:16]}…; delete it and run "
            "`torchcaps data fetch coil20`"
        )
    return pixels


@lru_cache(maxsize=1)
def _read_cached(path: Path, modified: int) -> np.ndarray:
    # All splits come from the same 24 MB of pixels: decoded once, not once for each.
    return inspect(path)


def dataset(pixels: np.ndarray, split: str) -> ArrayDataset:
    """One split: the view's number gives its azimuth, in degrees."""
    first, step = {"all": (0, 1), "train": (0, 2), "test": (1, 2)}[split]
    chosen = np.ascontiguousarray(pixels[:, first::step])
    objects, views = chosen.shape[:2]
    azimuth = (torch.arange(views) * step + first) * (360 // VIEWS)
    return ArrayDataset(
        "coil20",
        split,
        CLASSES,
        torch.from_numpy(chosen.reshape(-1, 1, SIDE, SIDE)),
        torch.arange(objects).repeat_interleave(views),
        {"azimuth": azimuth.repeat(objects)},
    )


def locate(split: str, root: Path) -> tuple[Path, ...]:
    path = root / "coil20" / ARCHIVE
    if not path.is_file():
        raise missing("coil20", split, ARCHIVE, path.parent)
    return (path,)


def load(split: str, root: Path) -> ArrayDataset:
    (path,) = locate(split, root)
    return dataset(_read_cached(path, path.stat().st_mtime_ns), split)


SOURCE = DownloadSource("coil20", (RemoteFile(ARCHIVE, (f"{SITE}{ARCHIVE}",), inspect=inspect),), locate)
COIL20 = DatasetEntry(
    "20 objects from 72 azimuths, 128×128 gray",
    load,
    {"train": OBJECTS * VIEWS // 2, "test": OBJECTS * VIEWS // 2, "all": OBJECTS * VIEWS},
    "research use; cite Nene, Nayar, Murase 1996",
    SOURCE,
)
