"""Statistics of results: intervals over seeds, and tests of one network against another."""

import math
from collections.abc import Sequence
from math import comb
from statistics import fmean, stdev, variance
from typing import NamedTuple

from jaxtyping import Bool
from numpy import ndarray


def over_seeds(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of several runs; it needs two at least.

    >>> [round(end, 3) for end in over_seeds([0.5, 0.6, 0.7])]
    [0.352, 0.848]
    """
    if len(values) < 2:
        raise ValueError(f"an interval over seeds needs at least two runs; got {len(values)}")
    reach = student_quantile(0.5 + confidence / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def shares_over_seeds(shares: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean of several shares, which ends at 0 and at 1."""
    low, high = over_seeds(shares)
    return max(0.0, low), min(1.0, high)


def difference_over_seeds(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> tuple[float, float]:
    """Welch's interval of how much higher the mean of the first runs is; both need two at least. Degrees of freedom are
    rounded down to whole ones, which makes it a little wider.

    >>> [round(end, 3) for end in difference_over_seeds([0.5, 0.6, 0.7], [0.2, 0.3, 0.4])]
    [0.073, 0.527]
    """
    middle, error, freedom = _welch(first, second)
    reach = student_quantile(0.5 + confidence / 2, freedom) * error if error else 0.0
    return middle - reach, middle + reach


def welch_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of Welch's t-test that both means are the same, with the degrees of freedom rounded down.

    >>> round(welch_p_value([0.5, 0.6, 0.7], [0.2, 0.3, 0.4]), 3)
    0.021
    """
    middle, error, freedom = _welch(first, second)
    if error == 0:
        return 1.0 if middle == 0 else 0.0
    return 1.0 - _within(abs(middle) / error, freedom)


def _welch(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, int]:
    """The difference of two means, its standard error (0 where all runs agree), and its degrees of freedom."""
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a difference over seeds needs at least two runs of each; got {len(first)} and {len(second)}")
    middle = fmean(first) - fmean(second)
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    whole = sum(part for part, _ in parts)
    if whole == 0:
        return middle, 0.0, 1
    freedom = whole**2 / sum(part**2 / freedom for part, freedom in parts)
    return middle, math.sqrt(whole), int(freedom + 1e-9)


def student_quantile(probability: float, freedom: int) -> float:
    """The value below which Student's t, of so many degrees of freedom, stays with this probability (above ½).

    >>> round(student_quantile(0.975, 4), 3)
    2.776
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"probability {probability} and {freedom} degrees of freedom; from 0.5 to 1, and at least 1")
    low, high = 0.0, 1.0
    while _within(high, freedom) < 2 * probability - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """The probability that Student's t is between −t and t: finite sums for whole degrees of freedom (Abramowitz and
    Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(freedom // 2):
        total += term
        term *= cosine * cosine * (2 * step + 1 + odd) / (2 * step + 2 + odd)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


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
