"""A test split for data that come without one: one in five examples of each class, always the same ones."""

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

TEST_SHARE = 5  # one in so many


def split_off_test(labels: Int[Tensor, "n"], keys: Sequence[str]) -> tuple[Int[Tensor, "train"], Int[Tensor, "test"]]:
    """Indices to train on and to test on, in order. Who is tested depends on the keys' hashes alone, so a new example
    moves few others; every class keeps at least one example to train on.

    >>> train, test = split_off_test(torch.tensor([0] * 10 + [1]), [f"{number}.png" for number in range(11)])
    >>> len(train), len(test)
    (9, 2)
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    digests = [hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest() for key in keys]
    for label in labels.unique().tolist():
        members = sorted((labels == label).nonzero()[:, 0].tolist(), key=lambda index: digests[index])
        count = max(1, round(len(members) / TEST_SHARE)) if len(members) > 1 else 0
        chosen[members[:count]] = True
    return (~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0]
