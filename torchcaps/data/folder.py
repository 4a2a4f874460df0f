"""A user's own images: ``folder:PATH``, one folder for each class.

``PATH/train/cat/1.png`` and ``PATH/test/cat/2.png`` give the splits ``train`` and ``test``. ``PATH/cat/1.png`` gives
``all``, of which one in five of each class is ``test`` and the others ``train``. Images are decoded batch by batch, so
a folder may be larger than memory; as many as fit into ``MEMORY`` are kept.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Batch, DataError, Dataset
from torchcaps.data.labels import TEST_SHARE, split_off_test
from torchcaps.data.listing import SHOWN, Listing, describe, find_splits, list_images, visible
from torchcaps.data.pictures import PictureHeader, Size, read_picture
from torchcaps.terminal import printable

SIDE = 128  # of the squares that images of several sizes become
LARGEST = 512  # side up to which images of one size stay as they are
MEMORY = 1 << 29  # bytes of decoded images that a process keeps


class FolderDataset(Dataset):
    """Image files, listed by class and name, all of one size; gray if every one of the folder is gray, else color.

    Args:
        directory: the folder.
        split: one of ``folder_splits``.
        shape: channels (1 or 3), rows and columns to read images at; what the folder's own images suggest if left out.
    """

    def __init__(self, directory: Path, split: str, shape: tuple[int, int, int] | None = None) -> None:
        self.name, self.split = f"folder:{directory}", split
        places = find_splits(directory)
        if split not in (offered := _list_splits(places)):
            raise DataError(
                f"{directory}: has no split {split!r}, only {', '.join(offered)}; lay images out as "
                f"{directory}/train/CLASS and {directory}/test/CLASS for two splits"
            )
        # All splits are listed, whichever is wanted: size, channels and classes are those of the folder.
        listings = {name: list_images(place, directory) for name, place in places.items()}
        self.classes = _classes(directory, listings)
        headers = [header for listing in listings.values() for header in listing.headers]
        size, words = _size(headers)
        self.resized = bool(words)
        self.gray, (self.rows, self.columns) = all(header.gray for header in headers), size
        if shape is not None:
            self.gray, self.rows, self.columns = shape[0] == 1, shape[1], shape[2]
            words = _describe_fit(headers, shape)
        elif not self.gray and any(header.gray for header in headers):
            words.append("gray and color images: all are read as color")
        source = listings.get(split) or listings[_source(split, places)]
        labels = torch.tensor([self.classes.index(name) for name in source.names])
        chosen, remark = self._choose(split, source, labels, places)
        self.paths, self.labels = [source.paths[index] for index in chosen.tolist()], labels[chosen]
        ignored = [printable(path.name) for path in visible(directory) if path.is_dir() and path not in places.values()]
        if ignored and "all" not in places:
            remark.append(f"left out: folders beside those of the splits: {', '.join(ignored[:SHOWN])}")
        about = f"{len(headers):,} images of {len(self.classes)} classes"
        self.notes = (about, *remark, *words, *describe(list(listings.values())))

    def _choose(
        self, split: str, source: Listing, labels: Tensor, places: dict[str, Path]
    ) -> tuple[Int[Tensor, "n"], list[str]]:
        """Which images of a listing a split has, and what to say of it."""
        everything = torch.arange(len(labels))
        if "test" in places:
            return everything, []
        if "validation" in places:
            return everything, [f"no test folder: {places['validation'].name} is for testing"]
        root = next(iter(places.values()))
        train, test = split_off_test(labels, [path.relative_to(root).as_posix() for path in source.paths])
        share = f"one in {TEST_SHARE} images of each class"
        remark = [f"no test folder: {share}, {len(test):,} in all, are for testing and not trained on"]
        return {"train": train, "test": test}.get(split, everything), remark

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        pixels = np.empty((len(indices), 1 if self.gray else 3, self.rows, self.columns), dtype=np.float32)
        for row, index in enumerate(indices.tolist()):
            image = _decode(self.paths[index], self.gray, (self.rows, self.columns))
            pixels[row] = image if image.dtype == np.float32 else image / np.float32(255)
        return Batch(torch.from_numpy(pixels), self.labels[indices], {})

    def find_damaged(self) -> list[str]:
        """What is wrong with images whose header was fine; every image is decoded."""
        found: list[str] = []
        for path in self.paths:
            try:
                _decode(path, self.gray, (self.rows, self.columns))
            except DataError as error:
                found.append(str(error))
        return found


_kept: dict[tuple[object, ...], np.ndarray] = {}
_kept_bytes = 0


def _decode(path: Path, gray: bool, size: Size) -> np.ndarray:
    """The pixels of a file, remembered while it stays the same and there is room."""
    global _kept_bytes
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); it was there when the folder was listed"
        ) from error
    key = (path, state.st_size, state.st_mtime_ns, gray, size)
    if (found := _kept.get(key)) is not None:
        return found
    found = read_picture(path, str(path), gray=gray, size=size)
    if _kept_bytes + found.nbytes <= MEMORY:
        _kept[key] = found
        _kept_bytes += found.nbytes
    return found


def folder_splits(directory: Path) -> tuple[str, ...]:
    """The splits that a folder has, those included that are made of others: a test split, if none is there."""
    return _list_splits(find_splits(directory))


def _list_splits(places: dict[str, Path]) -> tuple[str, ...]:
    if "all" in places:
        return "train", "test", "all"
    if "train" in places and "test" not in places:
        return tuple(dict.fromkeys((*places, "test")))
    return tuple(places)


def _source(split: str, places: dict[str, Path]) -> str:
    """The split whose folder another one is made of."""
    if "all" in places:
        return "all"
    return "validation" if split == "test" and "validation" in places else "train"


def _classes(directory: Path, listings: dict[str, Listing]) -> tuple[str, ...]:
    """The classes, which all splits must share: a label means the same in each of them."""
    found = {split: set(listing.names) for split, listing in listings.items()}
    first, *others = found
    for other in others:
        lacking = [
            f"{', '.join(map(repr, sorted(found[one] - found[two])))} only in {one}"
            for one, two in ((first, other), (other, first))
            if found[one] - found[two]
        ]
        if lacking:
            raise DataError(
                f"{directory}: classes differ between {first} and {other}: {'; '.join(lacking)}; give both the same "
                "class folders"
            )
    return tuple(sorted(found[first]))


def _size(headers: Sequence[PictureHeader]) -> tuple[Size, list[str]]:
    """The size at which images are read, and what to say of it."""
    sizes = sorted({(header.rows, header.columns) for header in headers}, key=lambda size: (size[0] * size[1], size))
    (rows, columns), (last_rows, last_columns) = sizes[0], sizes[-1]
    if len(sizes) == 1 and max(rows, columns) <= LARGEST:
        return sizes[0], []
    found = f"{len(sizes):,} sizes from {columns}×{rows} to {last_columns}×{last_rows}"
    found = found if len(sizes) > 1 else f"{columns}×{rows} pixels"
    return (SIDE, SIDE), [f"images of {found}: the middle square of each, resized to {SIDE}×{SIDE}"]


def _describe_fit(headers: Sequence[PictureHeader], shape: tuple[int, int, int]) -> list[str]:
    """What to say of images that are read at a shape which is given."""
    channels, rows, columns = shape
    words: list[str] = []
    if resized := sum((header.rows, header.columns) != (rows, columns) for header in headers):
        words.append(f"{resized:,} images resized to {columns}×{rows}")
    if recolored := sum(header.gray != (channels == 1) for header in headers):
        words.append(f"{recolored:,} images made {'gray' if channels == 1 else 'color'}")
    return words
