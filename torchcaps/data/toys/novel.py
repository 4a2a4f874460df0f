"""Toys from viewpoints that training never saw: a third of the azimuths to train on, the other two thirds to test on.

The split is that of Hinton, Sabour and Frosst 2018 on smallNORB: azimuths of 300, 320, 340, 0, 20 and 40 degrees are
familiar. Both ``test`` (new viewpoints) and ``familiar`` (known ones) show instances that training never saw.
"""

from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Dataset, SomeExamples
from torchcaps.data.catalog import DatasetEntry
from torchcaps.data.toys.dataset import TOYS, load_toys

FAMILIAR = (30, 32, 34, 0, 2, 4)
"""Azimuths to train on, numbered as smallNORB does: tens of degrees."""


def some_toys(toys: Dataset, azimuth: Int[Tensor, "n"], split: str) -> SomeExamples:
    """Those of the toys whose azimuth is familiar, or those whose is not."""
    familiar = torch.isin(azimuth, torch.tensor(FAMILIAR))
    chosen = (~familiar if split == "test" else familiar).nonzero()[:, 0]
    return SomeExamples(toys, chosen, split, "toys_novel (rendered)")


def load_novel(split: str, root: str | Path) -> SomeExamples:
    """``train``, ``test`` or ``familiar``, from the same pictures as ``toys``."""
    toys = load_toys("train" if split == "train" else "test", root)
    return some_toys(toys, toys.metadata["azimuth"], split)


TOYS_NOVEL = DatasetEntry(
    "toys, trained on a third of the azimuths, tested on the others",
    load_novel,
    {"train": 8_100, "test": 16_200, "familiar": 8_100},
    TOYS.terms,
    needs="toys",
)
