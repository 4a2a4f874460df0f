"""Whether one network is better than another on the same examples, or over the same seeds."""

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from jaxtyping import Bool
from numpy import ndarray

from torchcaps.lab.evaluation.intervals import over_seeds


class Paired(NamedTuple):
    """Two networks on the same examples: how many only the first, or only the second, has correct, and the
    probability of a split at least as uneven between equally good networks."""

    only_first: int
    only_second: int
    p: float


def compare_pairs(first: Bool[ndarray, "n"], second: Bool[ndarray, "n"]) -> Paired:
    """McNemar's exact test: of the examples on which the networks differ, each has half by chance.

    >>> import numpy as np
    >>> correct = np.ones(100, bool)
    >>> worse = correct.copy(); worse[:6] = False
    >>> compare_pairs(correct, worse)
    Paired(only_first=6, only_second=0, p=0.03125)
    """
    if len(first) != len(second):
        raise ValueError(f"pairs need the same examples; got {len(first)} and {len(second)}")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    differing, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(differing, count) for count in range(fewer + 1))
    return Paired(only_first, only_second, min(1.0, 2 * tail / 2**differing))


def adjust_for_many(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that can be read one by one although several tests were made.

    >>> adjust_for_many([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


class PairedSeeds(NamedTuple):
    """The mean of how much higher the first is with each seed, and Student's 95 % interval of it."""

    seeds: int
    difference: float
    interval: tuple[float, float]


def compare_seeds(first: dict[int, float], second: dict[int, float]) -> PairedSeeds | None:
    """Differences seed by seed, over the seeds that both have; ``None`` with fewer than two."""
    common = sorted(first.keys() & second.keys())
    if len(common) < 2:
        return None
    apart = [first[seed] - second[seed] for seed in common]
    return PairedSeeds(len(common), sum(apart) / len(apart), over_seeds(apart))
