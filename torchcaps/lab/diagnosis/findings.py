"""What is known of a network, what a check is, and what it finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

from torchcaps.lab.diagnosis.measuring import (
    InputStatistics,
    LabelStatistics,
    Layer,
    LossStatistics,
    PartGradient,
    Stage,
)
from torchcaps.lab.diagnosis.trials import RangeTest, Trial

PAGE = "https://torchcaps.github.io/torchcaps/doctor.html"
SETTLED = 100
"""Steps after which a network is examined as it is; before, a copy is that has learned a few examples by heart."""
FIRST_EPOCHS = 2
"""Passes over the training examples after which a network should be ahead of chance."""
CHANCE = 0.05  # balanced accuracy this close to that of a constant answer is no better than it

Kind = Literal["setup", "network", "answers"]
KINDS: tuple[Kind, ...] = ("setup", "network", "answers")
"""What a symptom is of: the first kind may be the cause of the second, and that of the third."""
Place = tuple[str, float]
"""Where something was measured, and the number."""


@dataclass(frozen=True)
class Outcome:
    """Answers to some examples: of how many, how many of each class there are, were found and were given."""

    count: int
    correct: int
    labels: tuple[int, ...]
    hits: tuple[int, ...]
    answers: tuple[int, ...] = ()

    @property
    def majority(self) -> float:
        """The share of the largest class."""
        return max(self.labels, default=0) / max(self.count, 1)

    @property
    def lead(self) -> float:
        """How much of what the largest class leaves is answered correctly: 0 for a constant answer, 1 for all."""
        return (self.correct / max(self.count, 1) - self.majority) / max(1 - self.majority, 1e-9)

    @property
    def is_above_chance(self) -> bool:
        """Whether more is correct than a constant answer would have by chance."""
        share = self.majority
        return self.correct / self.count - share > 2 * sqrt(share * (1 - share) / self.count)

    @property
    def is_chance(self) -> bool:
        """Whether a constant answer would be as good; never where examples have several classes or all have one."""
        told = sum(self.labels) == self.count and 0 < self.majority < 1
        return told and not self.is_above_chance and self.balanced_lead <= CHANCE

    @property
    def balanced_lead(self) -> float:
        """Balanced accuracy less that of a constant answer."""
        recalls = [hit / there for hit, there in zip(self.hits, self.labels, strict=True) if there]
        return sum(recalls) / len(recalls) - 1 / len(recalls)


@dataclass(frozen=True)
class Measurements:
    """All that is known of a network. What could not be measured is ``None`` or empty, and its checks are left out."""

    inputs: InputStatistics
    labels: LabelStatistics
    step: int = 0  # of training
    settled: bool = False  # whether what was examined has learned something, so that it should be past its start
    epochs: float | None = None  # of training, where that is known
    batch_size: int = 0  # examples of one forward pass in training
    batch_norm: bool = False
    reconstruction: float | None = None  # of a constant image, as a part of the classification loss of equal logits
    lr: float | None = None
    outcome: Outcome | None = None  # on the batch
    validation: Outcome | None = None  # on examples that were not trained on
    logged_loss: float | None = None  # the last classification losses in the log of the training
    losses: LossStatistics | None = None
    stages: tuple[Stage, ...] = ()
    layers: tuple[Layer, ...] = ()
    parts: tuple[PartGradient, ...] = ()
    by_heart: Trial | None = None
    rates: RangeTest | None = None


@dataclass(frozen=True)
class Check:
    """One symptom: where it can be, the number that shows it, and the range in which that number is healthy."""

    name: str
    symptom: str
    measured: str
    remedy: str
    values: Callable[[Measurements], Iterable[Place]]
    low: float = -inf
    high: float = inf
    kind: Kind = "network"

    def find(self, measurements: Measurements) -> "list[Finding]":
        """Where the number is outside of its range."""
        return [
            Finding(self, where, value)
            for where, value in self.values(measurements)
            if not self.low <= value <= self.high
        ]


@dataclass(frozen=True)
class Finding:
    """A symptom that a network has."""

    check: Check
    where: str
    value: float

    @property
    def name(self) -> str:
        return self.check.name

    @property
    def page(self) -> str:
        """Where symptom, cause and remedy are explained."""
        return f"{PAGE}#{self.check.name}"

    @property
    def limit(self) -> str:
        """The bound that the number is beyond."""
        below = self.value < self.check.low
        return f"{'at least' if below else 'at most'} {self.check.low if below else self.check.high:.3g}"

    @property
    def reading(self) -> str:
        """What was measured, and what would be healthy."""
        return f"{self.check.measured}: {self.value:.3g}; healthy: {self.limit}"

    def __str__(self) -> str:
        return f"{self.where}: {self.check.symptom} ({self.reading}). {self.check.remedy}"
