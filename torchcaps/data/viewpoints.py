"""Familiar and novel viewpoints: stereo pairs of smallNORB, or of the rendered toys, by azimuth or elevation.

Hinton, Sabour and Frosst 2018 (§5.2) train on a third of the viewpoints and test on the others; so do Hahn, Pyeon and
Kim 2019, to whom each image of a pair is an example. Test instances are never those of training: ``test`` shows them
from novel viewpoints, ``familiar`` from those of training.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import ArrayDataset, Batch, DataError, Dataset, SomeExamples

FAMILIAR = {"azimuth": (30, 32, 34, 0, 2, 4), "elevation": (0, 1, 2)}
"""Viewpoints to train on, numbered as smallNORB does: azimuths of 300° to 40° in tens of degrees; the elevations of
30°, 35° and 40°."""
PAIRS = {"train": 8_100, "test": 16_200, "familiar": 8_100}
"""Stereo pairs of each split, of azimuths and of elevations alike."""
IMAGES = {split: 2 * count for split, count in PAIRS.items()}
"""Single images of each split."""


def split_of_pairs(split: str) -> str:
    """The split of the whole dataset that holds the pairs of ``train``, ``test`` or ``familiar``."""
    return "train" if split == "train" else "test"


def choose_views(pairs: ArrayDataset, axis: str, split: str, name: str) -> SomeExamples:
    """Those of the examples whose azimuth or elevation is familiar, or, for ``test``, those whose is not."""
    familiar = torch.isin(pairs.metadata[axis], torch.tensor(FAMILIAR[axis]))
    chosen = (~familiar if split == "test" else familiar).nonzero()[:, 0]
    if len(chosen) == 0:
        kind = "novel" if split == "test" else "familiar"
        raise DataError(f"{name}/{split}: none of the {len(pairs)} examples of {pairs.name} has a {kind} {axis}")
    return SomeExamples(pairs, chosen, split, name)


class SingleImages(Dataset):
    """Each image of a stereo pair as an example: all left ones, then all right ones; ``metadata["eye"]`` is 0 or 1."""

    def __init__(self, pairs: Dataset) -> None:
        self.pairs = pairs
        self.name, self.split, self.classes, self.notes = pairs.name, pairs.split, pairs.classes, pairs.notes

    def __len__(self) -> int:
        return 2 * len(self.pairs)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        pair, eye = indices % len(self.pairs), indices // len(self.pairs)
        found = self.pairs.batch(pair)
        image = found.image.take_along_dim(eye[:, None, None, None], dim=1)
        return Batch(image, found.label, found.metadata | {"eye": eye})

    def at_epoch(self, epoch: int) -> Dataset:
        return SingleImages(self.pairs.at_epoch(epoch))


def single_views(
    load: Callable[[str, Path], ArrayDataset], axis: str, name: str
) -> Callable[[str, Path], SingleImages]:
    """A loader of single images by viewpoint, from a loader of all pairs."""

    def load_views(split: str, root: Path) -> SingleImages:
        return SingleImages(choose_views(load(split_of_pairs(split), root), axis, split, name))

    return load_views
