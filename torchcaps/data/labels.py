"""Labels of a user's own data: names of classes in a fixed order, and a test split of each class."""

import hashlib
import itertools
import math
import unicodedata
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import DataError
from torchcaps.terminal import printable


def class_name(written: str) -> str:
    """A class's name as it is shown and stored: composed letters (macOS decomposes them), no control characters.

    >>> class_name(" e\\u0301te\\u0301 "), class_name("a\\x1b[31m")
    ('été', 'a\\\\x1b[31m')
    """
    return printable(unicodedata.normalize("NFC", written).strip()).replace("\n", "\\n")


def order_names(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Each name once, in an order that depends on nothing but the names: numbers by size, words by letters.

    >>> order_names(["10", "9", "9"], "my.csv"), order_names({"b", "10", "a"}, "my.csv")
    (('9', '10'), ('10', 'a', 'b'))
    """
    found = sorted(set(names))
    numbers = {name: _number(name) for name in found}
    if any(number is None for number in numbers.values()):
        return tuple(found)
    wrong = next((name for name, number in numbers.items() if not math.isfinite(number or 0.0)), None)
    if wrong is not None and len(found) > 1:
        raise DataError(f"{place}: label {wrong!r} among numbers; remove what has no label, or give it a name")
    ordered = sorted(found, key=lambda name: (numbers[name], name))
    for one, other in itertools.pairwise(ordered):
        if numbers[one] == numbers[other]:
            raise DataError(
                f"{place}: labels {one!r} and {other!r} are one number in two spellings; write it in one way"
            )
    return tuple(ordered)


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None


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
