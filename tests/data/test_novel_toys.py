"""Toys from familiar azimuths and from novel ones: the split of Hinton 2018."""

import torch

from torchcaps.data.base import ArrayDataset
from torchcaps.data.toys.dataset import FAMILIAR, TOYS_NOVEL, some_toys


def test_training_never_sees_what_is_tested():
    azimuth = torch.arange(0, 36, 2).repeat(3)
    images = torch.arange(len(azimuth), dtype=torch.uint8)[:, None, None, None]
    toys = ArrayDataset(
        "toys", "test", ("a",), images, torch.zeros(len(azimuth), dtype=torch.int64), {"azimuth": azimuth}
    )
    known, new = some_toys(toys, azimuth, "familiar"), some_toys(toys, azimuth, "test")
    assert (len(known), len(new)) == (18, 36)
    seen = set(known.batch(torch.arange(18)).metadata["azimuth"].tolist())
    assert seen == set(FAMILIAR)
    assert not seen & set(new.batch(torch.arange(36)).metadata["azimuth"].tolist())
    assert torch.equal(new.batch(torch.tensor([2])).image, toys.batch(new.indices[2:3]).image)


def test_counts_are_thirds_of_the_toys():
    assert dict(TOYS_NOVEL.counts) == {"train": 8_100, "test": 16_200, "familiar": 8_100}
