"""How sure a measured share is: intervals for one run, and for several runs that differ in their seed."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple


class Interval(NamedTuple):
    """Where the true value is likely to be, ends included."""

    low: float
    high: float


def wilson(count: int, total: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share ``count / total``: right for small counts too, never outside 0 to 1.

    >>> [round(end, 4) for end in wilson(975, 1000)]
    [0.9634, 0.983]
    """
    if not 0 <= count <= total or total == 0:
        raise ValueError(f"a share of {count} out of {total}; the count goes from 0 to a total of at least 1")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, spread = count / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    # At the ends the formula gives exactly 0 and 1, but for rounding.
    return Interval(0.0 if count == 0 else middle - reach, 1.0 if count == total else middle + reach)


def over_seeds(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's interval of the mean of several runs; it needs two at least.

    >>> [round(end, 3) for end in over_seeds([0.5, 0.6, 0.7])]
    [0.352, 0.848]
    """
    if len(values) < 2:
        raise ValueError(f"an interval over seeds needs at least two runs; got {len(values)}")
    reach = student_quantile(0.5 + confidence / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(fmean(values) - reach, fmean(values) + reach)


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
