"""The controlled comparison: all five routings on all of its data, in one table and one figure, from the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduction.base import Job
from reproduction.paths import RecordPaths
from reproduction.plan import COMPARISON, SCENES, TITLES
from torchcaps.files import read_json
from torchcaps.lab.evaluation import over_seeds
from torchcaps.lab.reports import read_record
from torchcaps.lab.reports.results import Experiment, percent
from torchcaps.lab.reports.words import markdown_table

NOTHING = "–"


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
    for data, recipe in SCENES.items():
        cost, robust = (_rows(places, f"comparison-{recipe}-{kind}") for kind in ("cost", "robustness"))
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
    """All five routings in one table."""
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
