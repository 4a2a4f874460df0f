"""What intervals say about a claim, by one rule for all; and Holm's correction over all claims of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from reproduction.base import SEEDS, PaperClaim
from torchcaps.lab.evaluation import difference_over_seeds, welch_p_value
from torchcaps.lab.reports.results import Experiment, percent
from torchcaps.lab.training import interval

Interval = tuple[float, float]
Word = Literal["reproduced", "not reproduced", "inconclusive", "no verdict", "not run yet"]
LEVEL = 0.05

RULE = (
    "A claim that one network is more accurate than another is held against the 95 % interval of the difference of the "
    "two means over seeds (Welch's t): it is *reproduced* if the interval is above zero, *not reproduced* if it is "
    f"below, and *inconclusive* if zero is inside or if either side has fewer than {len(SEEDS)} seeds. With as many "
    "claims as here some intervals miss zero by chance: each p-value (two-sided) is also held against Holm's "
    "bound over all claims of this page that are decided over seeds; the page says which survive. A claim about times "
    "is decided by whether the intervals of the two lie apart. A target for one network, trained with one seed, gets "
    "its interval and no verdict."
)


@dataclass(frozen=True)
class Verdict:
    """How a claim stands, and why. ``p_value`` is there where seeds decided."""

    word: Word
    why: str = ""
    waits: bool = False  # for trainings that are still to be run
    p_value: float | None = None

    @property
    def wants_reason(self) -> bool:
        """All was run, and what the paper says was not seen."""
        return self.word in ("not reproduced", "inconclusive") and not self.waits

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


def compare(better: Interval, worse: Interval) -> Verdict:
    """Whether the first interval is above the second.

    >>> str(compare((0.97, 0.98), (0.95, 0.96))), str(compare((0.95, 0.98), (0.96, 0.97)))
    ('reproduced', 'inconclusive: the intervals overlap')
    """
    if better[0] > worse[1]:
        return Verdict("reproduced")
    if better[1] < worse[0]:
        return Verdict("not reproduced", "the intervals lie the other way round")
    return Verdict("inconclusive", "the intervals overlap")


def accuracies(experiment: Experiment) -> list[float]:
    """The accuracy of each run, also where a table is about the error."""
    return [1 - run.value if run.metric == "error" else run.value for run in experiment.runs]


def judge(claim: PaperClaim, better: Experiment | None, worse: Experiment | None = None) -> Verdict:
    """The verdict on a claim, from what was run of its two sides (of one, if it is about a figure)."""
    if better is None or (claim.error_at_most is None and worse is None):
        return Verdict("not run yet", waits=True)
    if claim.error_at_most is not None:
        return _held_against(claim.error_at_most, better)
    assert worse is not None
    return compare_seeds(accuracies(better), accuracies(worse))


def _held_against(error_at_most: float, experiment: Experiment) -> Verdict:
    """A target for one network: how many errors, with their interval. One seed decides nothing."""
    total = experiment.runs[0].total
    wrong = round(total * (1 - fmean(accuracies(experiment))))
    low, high = interval(wrong, total)
    counted = f"{wrong:,} of {total:,} test examples, {percent(low)} to {percent(high)} %"
    return Verdict("no verdict", f"{counted}; target {error_at_most:.2f} %")


def compare_seeds(better: Sequence[float], worse: Sequence[float]) -> Verdict:
    """Whether the first mean is above the second, from the accuracies of every seed.

    >>> str(compare_seeds([0.97, 0.98, 0.98], [0.95, 0.94, 0.95]))
    'reproduced: difference +3.00 %, from +1.69 to +4.31'
    """
    fewest = min(len(better), len(worse))
    if fewest < len(SEEDS):
        return Verdict("inconclusive", f"{fewest} of {len(SEEDS)} seeds were run", waits=True)
    low, high = difference_over_seeds(better, worse)
    why = f"difference {100 * (low + high) / 2:+.2f} %, from {100 * low:+.2f} to {100 * high:+.2f}"
    word: Word = "reproduced" if low > 0 else "not reproduced" if high < 0 else "inconclusive"
    return Verdict(word, why, p_value=welch_p_value(better, worse))


def survive_holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which hypotheses are rejected at a family-wise error rate of ``level`` by Holm's step-down procedure.

    >>> survive_holm([0.03, 0.001, 0.02, 0.5])
    [False, True, False, False]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    found = [False] * len(p_values)
    for place, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - place):
            break
        found[index] = True
    return found
