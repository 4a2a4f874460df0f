"""Learning rate and first momentum at every step: a pure function, so there is nothing to save and nothing to drift."""

import math
from typing import NamedTuple

from torchcaps.lab.recipes import Optimizer, Schedule


class Rates(NamedTuple):
    """What a step is taken with."""

    lr: float
    momentum: float


def rates(step: int, total: int, schedule: Schedule, optimizer: Optimizer) -> Rates:
    """The rates of a step (the first is 0) of ``total``.

    >>> regime = Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.9 * 0.999)
    >>> [rates(step, 101, regime, Optimizer("radam", lr=5e-4, momentum=0.999)).lr for step in (0, 10, 100)]
    [1e-05, 0.0005, 1e-05]
    """
    highest = optimizer.lr
    if schedule.kind == "constant":
        return Rates(highest, optimizer.momentum)
    if schedule.kind == "exponential":
        times = step / schedule.every if schedule.smooth else step // schedule.every
        return Rates(highest * schedule.factor**times, optimizer.momentum)
    if schedule.kind == "steps":
        passed = sum(step >= round(share * total) for share in schedule.milestones)
        return Rates(highest * schedule.factor**passed, optimizer.momentum)
    if schedule.kind == "warmup_cosine":
        return _warmup_cosine(step, total, schedule, optimizer)
    raise ValueError(f"no schedule {schedule.kind!r}; there are constant, exponential, steps and warmup_cosine")


def _warmup_cosine(step: int, total: int, schedule: Schedule, optimizer: Optimizer) -> Rates:
    """Heinsen 2019, §4.2: both change linearly over the first share of training, and return with a cosine shape; the
    momentum is lowest where the learning rate is highest. First and last step are at the ends exactly."""
    height = _height(step / max(1, total - 1), schedule.warmup)
    peak = optimizer.momentum if schedule.momentum_low is None else schedule.momentum_low
    return Rates(_between(schedule.low, optimizer.lr, height), _between(optimizer.momentum, peak, height))


def _height(progress: float, warmup: float) -> float:
    """0 at both ends, 1 where the warm-up ends."""
    if progress < warmup:
        return progress / warmup
    return 0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1.0 - warmup)) if warmup < 1.0 else 1.0


def _between(start: float, end: float, height: float) -> float:
    return start * (1.0 - height) + end * height  # exact at both ends
