"""A user's own images: ``folder:PATH``, one folder for each class.

``PATH/train/cat/1.png`` and ``PATH/test/cat/2.png`` give the splits ``train`` and ``test``; ``PATH/cat/1.png`` gives
the one split ``all``. Images are decoded batch by batch, so a folder may be larger than memory.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Batch, DataError, Dataset
from torchcaps.data.files import reading
from torchcaps.data.pictures import SUFFIXES, decode, size_of

SPLITS = ("train", "validation", "test")


class FolderDataset(Dataset):
    """Image files of one size, listed by class and name; grey if every one of them is grey, else colour."""

    def __init__(self, directory: Path, split: str) -> None:
        self.name, self.split = f"folder:{directory}", split
        place = _place(directory, split)
        # Classes are those of all splits, so that a label means the same in each of them.
        places = [_place(directory, name) for name in folder_splits(directory)]
        self.classes = tuple(sorted({folder.name for each in places for folder in _visible(each) if folder.is_dir()}))
        self.paths: list[Path] = []
        labels: list[int] = []
        for folder in _visible(place):
            if not folder.is_dir():
                continue
            files = [file for file in _visible(folder) if file.suffix.lower() in SUFFIXES and file.is_file()]
            if not files:
                raise DataError(f"{folder}: no images; a class folder holds files ending in {', '.join(SUFFIXES)}")
            self.paths += files
            labels += [self.classes.index(folder.name)] * len(files)
        if not self.paths:
            raise DataError(f"{place}: no class folders; put images at {place}/CLASS/NAME.png")
        self.labels = torch.tensor(labels)
        # Only headers are read here: a wrong size is better known now than in the middle of an epoch.
        self.rows, self.columns, self.grey = size_of(self.paths[0], str(self.paths[0]))
        for path in self.paths[1:]:
            rows, columns, grey = size_of(path, str(path))
            if (rows, columns) != (self.rows, self.columns):
                raise DataError(
                    f"{path}: {columns}×{rows} pixels, but {self.paths[0].name} has {self.columns}×{self.rows}; "
                    "bring all images to one size"
                )
            self.grey = self.grey and grey

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        chosen = [self.paths[index] for index in indices.tolist()]
        pixels = np.empty((len(chosen), 1 if self.grey else 3, self.rows, self.columns), dtype=np.uint8)
        for row, path in enumerate(chosen):
            image = decode(path, str(path), grey=self.grey)
            if image.shape != pixels.shape[1:]:
                raise DataError(f"{path}: {image.shape[2]}×{image.shape[1]} pixels; it has changed since it was listed")
            pixels[row] = image
        return Batch(torch.from_numpy(pixels).to(torch.float32) / 255.0, self.labels[indices], {})


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in order, without hidden files: some systems put "._1.png" beside "1.png"."""
    with reading(folder, "make it readable"):
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def folder_splits(directory: Path) -> tuple[str, ...]:
    """The splits that a folder has: those of the usual names, or else ``all``."""
    if not directory.is_dir():
        raise DataError(f"{directory}: no such folder; `folder:PATH` wants PATH/CLASS/NAME.png")
    return tuple(name for name in SPLITS if (directory / name).is_dir()) or ("all",)


def _place(directory: Path, split: str) -> Path:
    offered = folder_splits(directory)
    if split in offered:
        return directory if split == "all" else directory / split
    raise DataError(
        f"{directory}: has no split {split!r}, only {', '.join(offered)}; lay images out as "
        f"{directory}/train/CLASS and {directory}/test/CLASS for two splits"
    )
