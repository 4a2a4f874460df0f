"""The controlled comparison: all routings on all of its data, against none and each other, from the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduction.base import Job
from reproduction.comparison_plan import COMPARED, COMPARISON, CONTROL, SCENES, TITLES
from reproduction.paths import RecordPaths
from torchcaps.files import read_json
from torchcaps.lab.evaluation import over_seeds
from torchcaps.lab.reports import read_record
from torchcaps.lab.reports.results import Experiment, percent
from torchcaps.lab.reports.words import markdown_table

NOTHING = "–"
NOT_RUN = "not run yet"
MIN_SEEDS = 3
UNSEEN = "no difference seen"


@dataclass(frozen=True)
class Stand:
    """How one routing stands on one set of data: its runs, and what the studies measured on them."""

    accuracy: Experiment | None = None
    step: float | None = None  # milliseconds of a training step
    memory: float | None = None  # mebibytes
    distorted: tuple[float, ...] = ()  # percent right, the mean over all distortions, for each seed


def stands(places: RecordPaths) -> dict[str, dict[str, Stand]]:
    """By routing and data."""
    found: dict[str, dict[str, Stand]] = {routing: {} for routing in TITLES}
    cost = _rows(places, "comparison-costs")
    for data, recipe in SCENES.items():
        robust = {
            name: row
            for group in COMPARED
            for name, row in _rows(places, f"comparison-{recipe}-{group}robustness").items()
        }
        for routing in TITLES:
            name = f"{data}, {routing}"
            item = COMPARISON.item(name)
            paths = [places.record(Job(COMPARISON.name, item, seed, "laptop")) for seed in item.seeds]
            runs = tuple(read_record(path) for path in paths if path.is_file())
            costs, distortions = cost.get(name, {}), robust.get(name, {})
            means = [value for column, value in distortions.items() if column.endswith("mean %")]
            found[routing][data] = Stand(
                Experiment(runs) if runs else None,
                costs.get("training step, ms"),
                costs.get("memory, MiB"),
                tuple(fmean(of_seed) for of_seed in zip(*means, strict=True)),
            )
    return found


def comparison_table(places: RecordPaths) -> str:
    """All routings in one table."""
    columns = ("routing", *SCENES, "training step", "memory", "distorted")
    rows = []
    for routing, by_data in stands(places).items():
        each = list(by_data.values())
        rows.append(
            (
                routing,
                *(_accuracy(one.accuracy) for one in each),
                _mean([one.step for one in each], "{:.0f} ms"),
                _mean([one.memory for one in each], "{:.0f} MiB"),
                _describe_distorted([one.distorted for one in each]),
            )
        )
    return markdown_table(columns, rows)


@dataclass(frozen=True)
class Gain:
    """What a routing gains over none on one set of data: points of accuracy, for each seed that both have."""

    points: tuple[float, ...]

    @property
    def ends(self) -> tuple[float, float] | None:
        """The 95 % interval over seeds, if there are three at least."""
        return over_seeds(self.points) if len(self.points) >= MIN_SEEDS else None

    @property
    def word(self) -> str:
        if self.ends is None:
            return NOT_RUN
        low, high = self.ends
        return "better" if low > 0 else "worse" if high < 0 else UNSEEN

    def __str__(self) -> str:
        if self.ends is None:
            return NOT_RUN
        low, high = self.ends
        mean = f"{fmean(self.points):+.2f} ({low:+.2f} to {high:+.2f})"
        return f"**{mean}**" if self.word != UNSEEN else mean


def gains(places: RecordPaths) -> dict[str, dict[str, Gain]]:
    """By routing and data: accuracy minus that of the control, seed by seed."""
    control, *_ = (title for title, name in TITLES.items() if name == CONTROL)
    found = stands(places)
    by_seed = {
        (routing, data): {} if one.accuracy is None else {run.seed: 100 * run.value for run in one.accuracy.runs}
        for routing, by_data in found.items()
        for data, one in by_data.items()
    }
    return {
        routing: {
            data: Gain(
                tuple(
                    value - by_seed[control, data][seed]
                    for seed, value in by_seed[routing, data].items()
                    if seed in by_seed[control, data]
                )
            )
            for data in SCENES
        }
        for routing in TITLES
        if routing != control
    }


def gains_table(places: RecordPaths) -> str:
    """What every routing gains over none."""
    return markdown_table(
        ("routing", *SCENES), [(routing, *map(str, by_data.values())) for routing, by_data in gains(places).items()]
    )


def describe_gains(places: RecordPaths) -> str:
    """In words, where routing beats no routing and where it does not."""
    all_gains = [gain for by_data in gains(places).values() for gain in by_data.values()]
    run = [gain for gain in all_gains if gain.word != NOT_RUN]
    counts = {word: sum(gain.word == word for gain in run) for word in ("better", "worse", UNSEEN)}
    missing = f" {len(all_gains) - len(run)} of {len(all_gains)} are not run yet." if len(run) < len(all_gains) else ""
    if not run:
        return f"Routing against no routing:{missing}"
    parts = [
        f"Of {len(run)} comparisons of a routing with no routing at all, routing is better in {counts['better']}, "
        f"worse in {counts['worse']}, and no difference is seen in {counts[UNSEEN]}.{missing}"
    ]
    for routing, by_data in gains(places).items():
        words = [
            f"{word} on {', '.join(data for data, gain in by_data.items() if gain.word == word)}"
            for word in ("better", "worse", UNSEEN)
            if any(gain.word == word for gain in by_data.values())
        ]
        if words:
            parts.append(f"- {routing}: {'; '.join(words)}.")
    return parts[0] + "\n\n" + "\n".join(parts[1:])


ABOUT_GAINS = (
    "Percentage points of accuracy above uniform routing, which gives every vote the same weight: the mean of the "
    "differences, seed by seed, with its 95 % interval over seeds (Student's t). Bold: the interval excludes zero. "
    "With three seeds an interval is wide: only differences that are large or steady are seen, and of so many "
    "comparisons, not corrected for their number, about one in twenty would exclude zero by chance."
)

ABOUT = (
    "Accuracy on test images, with its 95 % interval over seeds. Time of a training step and memory of inference are "
    "means over the four sets of data; so is the accuracy on distorted test images, a mean over all distortions and "
    "their amounts, with its interval over seeds. The studies below have each by itself."
)


def _accuracy(found: Experiment | None) -> str:
    if found is None:
        return NOTHING
    low, high = found.interval
    return f"{percent(found.value)} % ({percent(low)}–{percent(high)})"


def _describe_distorted(seeds_by_data: list[tuple[float, ...]]) -> str:
    """The mean over all sets of data, if all are known, and its interval over seeds."""
    if not all(seeds_by_data):
        return NOTHING
    means = [fmean(of_seed) for of_seed in zip(*seeds_by_data, strict=True)]
    low, high = over_seeds(means)
    return f"{fmean(means):.1f} % ({low:.1f}–{high:.1f})"


def _mean(values: list[float | None], form: str) -> str:
    """The mean, if all are known: a mean over other data would not be comparable."""
    known = [value for value in values if value is not None]
    return form.format(fmean(known)) if known and len(known) == len(values) else NOTHING


def _rows(places: RecordPaths, study: str) -> dict[str, dict[str, Any]]:
    """A study's table, by network and column."""
    path: Path = places.study(next(each for each in COMPARISON.studies if each.name == study), "laptop")
    if not path.is_file():
        return {}
    record: Mapping[str, Any] = read_json(path)
    return {row[0]: dict(zip(record["columns"], row, strict=True)) for row in record["rows"]}
