"""Records of finished runs: JSON files, one for each run, checked when they are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torchcaps.files import read_json
from torchcaps.lab.training import interval
from torchcaps.typed import show

FORMAT = 1
LARGEST = 1e18
Metric = Literal["accuracy", "error", "exact match"]
KINDS: dict[type | tuple[type, ...], str] = {
    str: "text",
    int: "a whole number",
    (int, float): "a number",
    dict: "an object",
    list: "a list",
}


@dataclass(frozen=True)
class RunRecord:
    """One finished run. ``target`` is the paper's figure in percent, ``None`` where it has none."""

    recipe: str
    scale: str
    seed: int
    model: str
    parameters: int
    train_data: str
    test_data: str
    sizes: Mapping[str, int]
    correct: int
    total: int
    metric: Metric
    target: float | None
    table: str
    note: str
    seconds: float
    commit: str
    overrides: tuple[str, ...]
    balanced_accuracy: float | None = None  # records of older runs have neither
    majority_share: float | None = None

    @property
    def value(self) -> float:
        """What was reached in the claim's own measure, as a share."""
        return self._count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the value."""
        return interval(self._count, self.total)

    @property
    def _count(self) -> int:
        return self.total - self.correct if self.metric == "error" else self.correct


def read_records(directory: Path) -> list[RunRecord]:
    """All records below a directory, in the order of their paths."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such folder of records; `torchcaps train RECIPE --results DIR` writes them")
    return [read_record(path) for path in sorted(directory.rglob("*.json"))]


def read_run_records(directory: Path, warn: Callable[[str], object]) -> list[RunRecord]:
    """The records of the run folders in a directory; ``warn`` hears of those that are wrong, and the others count."""
    found = []
    for path in sorted(directory.glob("*/record.json")):
        try:
            found.append(read_record(path))
        except ValueError as error:
            warn(f"left out: {error}")
    return found


def read_record(path: Path) -> RunRecord:
    """The record of a file; whatever is wrong with it is said with the file's name."""
    return parse_record(read_json(path), str(path))


def parse_record(found: object, name: str = "record") -> RunRecord:
    """A record from what JSON gave; ``name`` is what to call it in a message."""
    if not isinstance(found, dict):
        raise ValueError(f"{name}: a record is an object; got {type(found).__name__}")
    if found.get("format") != FORMAT:
        raise ValueError(f"{name}: format {found.get('format')!r}; this version reads format {FORMAT}")
    fields = _Fields(found, name)
    data, metrics, claim = fields.inside("data"), fields.inside("metrics"), fields.inside("claim")
    correct, total = metrics.get("correct", int), metrics.get("total", int)
    if not 0 <= correct <= total or total == 0:
        raise ValueError(f"{name}: {correct} correct of {total}; the first goes from 0 to the second")
    accuracy = metrics.get("accuracy", (int, float))
    if abs(accuracy - correct / total) > 1e-6:
        raise ValueError(f"{name}: accuracy {accuracy} is not {correct} / {total}; shares go from 0 to 1")
    metric = claim.get("metric", str)
    if metric not in get_args(Metric):
        raise ValueError(f"{name}: claim.metric {metric!r}; there are {', '.join(map(repr, get_args(Metric)))}")
    train = data.get("train", str)
    return RunRecord(
        recipe=fields.get("recipe", str),
        scale=fields.get("scale", str),
        seed=fields.get("seed", int),
        model=fields.get("model", str),
        parameters=fields.get("parameters", int),
        train_data=train,
        test_data=data.get("test", str) or train,
        sizes=_sizes(data.get("sizes", dict), name),
        correct=correct,
        total=total,
        metric=metric,
        target=None if claim.found.get("target") is None else float(claim.get("target", (int, float))),
        table=claim.get("table", str),
        note=str(claim.found.get("note", "")),
        seconds=float(fields.get("seconds", (int, float))),
        commit=str(found.get("commit") or ""),
        overrides=tuple(map(str, fields.get("overrides", list))),
        balanced_accuracy=metrics.share("balanced_accuracy"),
        majority_share=metrics.share("majority_share"),
    )


def _sizes(found: Mapping[str, Any], name: str) -> dict[str, int]:
    for part, size in found.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise ValueError(f"{name}: data.sizes.{part} is {size!r}; expected a whole number")
    return dict(found)


@dataclass(frozen=True)
class _Fields:
    """An object of a record, and where in the file it is."""

    found: Mapping[str, Any]
    name: str
    path: str = ""

    def get(self, field: str, kind: type | tuple[type, ...]) -> Any:
        if field not in self.found:
            there = ", ".join(self.found) or "nothing"
            raise ValueError(f"{self.name}: no field {self.path}{field}; it has {there}")
        value = self.found[field]
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ValueError(f"{self.name}: {self.path}{field} is {show(value)}; expected {KINDS[kind]}")
        if isinstance(value, int | float) and not abs(value) < LARGEST:  # neither is NaN
            raise ValueError(f"{self.name}: {self.path}{field} is {show(value)}; expected a number of ordinary size")
        return value

    def share(self, field: str) -> float | None:
        """A share from 0 to 1; ``None`` where there is none."""
        if self.found.get(field) is None:
            return None
        value = float(self.get(field, (int, float)))
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{self.name}: {self.path}{field} is {value}; shares go from 0 to 1")
        return value

    def inside(self, field: str) -> "_Fields":
        return _Fields(self.get(field, dict), self.name, f"{self.path}{field}.")
