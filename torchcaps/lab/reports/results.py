"""Paper against ours: one line for each experiment, made from the records of its runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from torchcaps.lab.evaluation import shares_over_seeds
from torchcaps.lab.reports.records import RunRecord
from torchcaps.lab.reports.words import markdown_table
from torchcaps.lab.training.records import without_seed
from torchcaps.terminal import format_duration

COLUMNS = ("recipe", "paper", "ours", "scale", "data", "seeds", "parameters", "time")
NOTHING = "No runs are recorded yet."


@dataclass(frozen=True)
class Experiment:
    """Runs that differ in nothing but the seed."""

    runs: tuple[RunRecord, ...]

    @property
    def value(self) -> float:
        return fmean(run.value for run in self.runs)

    @property
    def interval(self) -> tuple[float, float]:
        """Over seeds where there are several, else over the examples of the one run."""
        if len(self.runs) == 1:
            return self.runs[0].interval
        return shares_over_seeds([run.value for run in self.runs])

    def cells(self) -> tuple[str, ...]:
        """The line of the table, without any markup."""
        run = self.runs[0]
        low, high = self.interval
        target = "no figure" if run.target is None else f"{run.target:g} % {run.metric}"
        notes = ", ".join(part for part in (run.table, run.note) if part)
        return (
            run.recipe,
            f"{target} ({notes})" if notes else target,
            f"{percent(self.value)} % ({percent(low)}–{percent(high)}){self._baseline()}",
            f"{run.scale} ({' '.join(changes)})" if (changes := without_seed(run.overrides)) else run.scale,
            _data(run),
            ", ".join(str(each.seed) for each in self.runs),
            f"{run.parameters:,}",
            format_duration(fmean(each.seconds for each in self.runs)),
        )

    def _baseline(self) -> str:
        """Balanced accuracy and the largest class's share, where all records have them."""
        words = []
        for name, field in (("balanced", "balanced_accuracy"), ("majority class", "majority_share")):
            shares = [getattr(run, field) for run in self.runs]
            if all(share is not None for share in shares):
                words.append(f"{name} {percent(fmean(shares))} %")
        return f"; {', '.join(words)}" if words else ""


def experiments(records: Iterable[RunRecord]) -> list[Experiment]:
    """Records in groups that differ in the seed alone, sorted by recipe. Smoke runs are left out: two steps are no
    result."""
    groups: dict[tuple, list[RunRecord]] = {}
    for record in records:
        if record.scale != "smoke":
            sizes = tuple(sorted(record.sizes.items()))
            changes = without_seed(record.overrides)
            key = (record.recipe, record.scale, changes, record.train_data, record.test_data, sizes)
            groups.setdefault(key, []).append(record)
    found = []
    for key in sorted(groups):
        # Of two runs with one seed the last one read counts: the other is a leftover.
        by_seed = {record.seed: record for record in groups[key]}
        found.append(Experiment(tuple(by_seed[seed] for seed in sorted(by_seed))))
    return found


def results_table(records: Iterable[RunRecord]) -> str:
    """The table as Markdown."""
    rows = [each.cells() for each in experiments(records)]
    if not rows:
        return NOTHING
    return markdown_table(COLUMNS, [(f"`{recipe}`", *cells) for recipe, *cells in rows])


def fill(page: str, table: str, name: str = "results") -> str:
    """A page with the table between the marks of this name; a page without them stays as it is.

    >>> fill("a\\n<!-- results:begin -->\\nold\\n<!-- results:end -->\\nb", "new").splitlines()
    ['a', '<!-- results:begin -->', 'new', '<!-- results:end -->', 'b']
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if begin not in page and end not in page:
        return page
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise ValueError(f"a page has one {begin} and after it one {end}, or neither")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _data(run: RunRecord) -> str:
    sizes = f", {run.sizes['train']:,} examples" if "train" in run.sizes else ""
    tested = "" if run.test_data == run.train_data else f"; tested on {run.test_data}"
    return f"{run.train_data}{sizes}{tested}"
