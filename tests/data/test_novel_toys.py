"""Splits of the rendered toys: by viewpoint as Hinton 2018, and for choosing settings."""

import torch

from torchcaps.data.base import ArrayDataset
from torchcaps.data.toys.catalog import INSTANCES
from torchcaps.data.toys.dataset import KEPT_FOR_VALIDATION, TOYS, TOYS_NOVEL, TOYS_VAL, keep_instance


def test_counts_are_thirds_of_the_toys():
    assert dict(TOYS_NOVEL.counts) == {"train": 8_100, "test": 16_200, "familiar": 8_100}


def test_validation_shows_an_instance_that_training_lacks_and_no_test_instance():
    instance = torch.tensor(INSTANCES["train"]).repeat_interleave(4)
    images = torch.arange(len(instance), dtype=torch.uint8)[:, None, None, None]
    label = torch.zeros(len(instance), dtype=torch.int64)
    toys = ArrayDataset("toys", "train", ("a",), images, label, {"instance": instance})
    known, new = keep_instance(toys, instance, "train"), keep_instance(toys, instance, "test")
    assert (len(known), len(new)) == (16, 4)
    seen = set(known.batch(torch.arange(16)).metadata["instance"].tolist())
    kept = set(new.batch(torch.arange(4)).metadata["instance"].tolist())
    assert kept == {KEPT_FOR_VALIDATION}
    assert seen | kept == set(INSTANCES["train"])
    assert not seen & kept
    assert not (seen | kept) & set(INSTANCES["test"])


def test_counts_of_validation_are_those_of_the_training_toys():
    assert dict(TOYS_VAL.counts) == {"train": 4 * 4_860, "test": 4_860}
    assert sum(TOYS_VAL.counts.values()) == TOYS.counts["train"]
