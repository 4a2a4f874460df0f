"""What intervals say about a claim, by one rule for all."""

from dataclasses import dataclass
from typing import Literal

from torchcaps.campaign.base import SEEDS, Claim
from torchcaps.report.results import Experiment

Interval = tuple[float, float]
Word = Literal["came out", "did not come out", "not decided", "not run yet"]

RULE = (
    "A claim that one network is more accurate than another *came out* if the lower end of the first one's interval is "
    "above the upper end of the second one's, *did not come out* if it is the other way round, and is *not decided* if "
    f"the intervals overlap or if either side has fewer than {len(SEEDS)} seeds. A claim about a figure is decided by "
    "whether the interval lies on one side of it."
)


@dataclass(frozen=True)
class Verdict:
    """How a claim stands, and why."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


def compare(better: Interval, worse: Interval) -> Verdict:
    """Whether the first is above the second.

    >>> str(compare((0.97, 0.98), (0.95, 0.96))), str(compare((0.95, 0.98), (0.96, 0.97)))
    ('came out', 'not decided: the intervals overlap')
    """
    if better[0] > worse[1]:
        return Verdict("came out")
    if better[1] < worse[0]:
        return Verdict("did not come out", "the intervals lie the other way round")
    return Verdict("not decided", "the intervals overlap")


def accuracy_interval(experiment: Experiment) -> Interval:
    """The interval of the accuracy, also where a table is about the error."""
    low, high = experiment.interval
    return (1 - high, 1 - low) if experiment.runs[0].metric == "error" else (low, high)


def judge(claim: Claim, better: Experiment | None, worse: Experiment | None = None) -> Verdict:
    """The verdict on a claim, from what was run of its two sides (of one, if it is about a figure)."""
    if better is None or (claim.error_at_most is None and worse is None):
        return Verdict("not run yet")
    if claim.error_at_most is not None:
        low, high = (1 - end for end in reversed(accuracy_interval(better)))
        limit = claim.error_at_most / 100
        if high <= limit:
            return Verdict("came out")
        if low > limit:
            return Verdict("did not come out", f"the whole interval is above {claim.error_at_most:g} %")
        return Verdict("not decided", f"{claim.error_at_most:g} % is inside the interval")
    assert worse is not None
    fewest = min(len(better.runs), len(worse.runs))
    if fewest < len(SEEDS):
        return Verdict("not decided", f"{fewest} of {len(SEEDS)} seeds were run")
    return compare(accuracy_interval(better), accuracy_interval(worse))
