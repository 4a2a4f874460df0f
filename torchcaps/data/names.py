"""Names of classes, from folders and tables: one spelling, an order that is always the same, no two alike."""

import itertools
import math
import unicodedata
from collections.abc import Iterable

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
