"""What intervals say about a claim, by one rule for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from reproduction.base import SEEDS, Claim
from torchcaps.evaluate import difference_over_seeds
from torchcaps.report.results import Experiment

Interval = tuple[float, float]
Word = Literal["came out", "did not come out", "not decided", "not run yet"]

RULE = (
    "A claim that one network is more accurate than another is held against the 95 % interval of the difference of the "
    "two means over seeds (Welch's t): it *came out* if the interval is above zero, *did not come out* if it is below, "
    f"and is *not decided* if zero is inside or if either side has fewer than {len(SEEDS)} seeds. An aim "
    "at an error on the test set is counted there; a claim about times is decided by whether the intervals of the two "
    "lie apart."
)


@dataclass(frozen=True)
class Verdict:
    """How a claim stands, and why."""

    word: Word
    why: str = ""
    waits: bool = False  # for trainings that are still to be run

    @property
    def wants_reason(self) -> bool:
        """All was run, and what the paper says was not seen."""
        return self.word != "came out" and not self.waits

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


def compare(better: Interval, worse: Interval) -> Verdict:
    """Whether the first interval is above the second.

    >>> str(compare((0.97, 0.98), (0.95, 0.96))), str(compare((0.95, 0.98), (0.96, 0.97)))
    ('came out', 'not decided: the intervals overlap')
    """
    if better[0] > worse[1]:
        return Verdict("came out")
    if better[1] < worse[0]:
        return Verdict("did not come out", "the intervals lie the other way round")
    return Verdict("not decided", "the intervals overlap")


def accuracies(experiment: Experiment) -> list[float]:
    """The accuracy of each run, also where a table is about the error."""
    return [1 - run.value if run.metric == "error" else run.value for run in experiment.runs]


def judge(claim: Claim, better: Experiment | None, worse: Experiment | None = None) -> Verdict:
    """The verdict on a claim, from what was run of its two sides (of one, if it is about a figure)."""
    if better is None or (claim.error_at_most is None and worse is None):
        return Verdict("not run yet", waits=True)
    if claim.error_at_most is not None:
        total = better.runs[0].total
        wrong = round(total * (1 - fmean(accuracies(better))))
        word = "came out" if wrong <= claim.error_at_most / 100 * total else "did not come out"
        return Verdict(word, f"{wrong:,} of {total:,} test examples")
    assert worse is not None
    return compare_seeds(accuracies(better), accuracies(worse))


def compare_seeds(better: Sequence[float], worse: Sequence[float]) -> Verdict:
    """Whether the first mean is above the second, from the accuracies of every seed.

    >>> str(compare_seeds([0.97, 0.98, 0.98], [0.95, 0.94, 0.95]))
    'came out: difference +3.00 %, from +1.69 to +4.31'
    """
    fewest = min(len(better), len(worse))
    if fewest < len(SEEDS):
        return Verdict("not decided", f"{fewest} of {len(SEEDS)} seeds were run", waits=True)
    low, high = difference_over_seeds(better, worse)
    why = f"difference {100 * (low + high) / 2:+.2f} %, from {100 * low:+.2f} to {100 * high:+.2f}"
    return Verdict("came out" if low > 0 else "did not come out" if high < 0 else "not decided", why)
