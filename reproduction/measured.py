"""What a study is given and what it gives back.

A cell of a table is a word, a number, a count ``{"correct": …, "total": …}``, which the page shows with its interval,
or a list of numbers or counts, one for each seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reproduction.base import CampaignScale
from torchcaps.lab.evaluation.subjects import LoadedModel as Opened
from torchcaps.lab.loaders import Loader
from torchcaps.lab.training import Run

# What is looked at: examples for distortions, attacks, and accuracies; repeats of a time.
LIMITS: dict[CampaignScale, dict[str, int]] = {
    "laptop": {"distorted": 500, "attacked": 200, "counted": 2000, "decoded": 200, "repeats": 9, "batch": 128},
    "smoke": {"distorted": 8, "attacked": 4, "counted": 16, "decoded": 8, "repeats": 2, "batch": 2},
}


@dataclass(frozen=True)
class StudyRun:
    """A finished run, as the campaign's table calls it."""

    name: str
    opened: Opened
    run: Run
    record: Mapping[str, Any]

    def loader(self) -> Loader:
        return self.run.loader("test")


@dataclass(frozen=True)
class Measured:
    """What a study found. ``comparisons`` have a text, two sides, of which the first should be the higher one, and the
    likely reason if it is not; a side is an interval, or (``"of": "seeds"``) a share for every seed. ``numbers`` is
    everything, for those who want more than the table."""

    about: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    figures: Mapping[str, Any] = field(default_factory=dict)
    comparisons: Sequence[Mapping[str, Any]] = ()
    numbers: Any = None


def count(correct: Any, total: Any) -> dict[str, int]:
    """A count of right answers, from any kind of whole number."""
    return {"correct": int(correct), "total": int(total)}


def by_network(subjects: Sequence[StudyRun]) -> dict[str, list[StudyRun]]:
    """The seeds of each network."""
    found: dict[str, list[StudyRun]] = {}
    for each in subjects:
        found.setdefault(each.name, []).append(each)
    return found
