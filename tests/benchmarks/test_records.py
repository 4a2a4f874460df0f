"""The recorded benchmarks reach their targets: a record with a miss does not land unnoticed."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import growth_cases
from benchmarks.cases import OURS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "records"
RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
WITHOUT_TARGETS = {"convolutions", "costs", "generated-data", "limits"}
"""What cost models and limits are fitted to (``tests/votes``, ``tests/test_convolution.py``), and rates."""

KNOWN_MISSES: dict[tuple[str, str], str] = {}
"""The record and the case of each miss, with the reason why it stands."""


def find_misses(record: dict) -> Iterator[tuple[str, str]]:
    """The cases of a record that miss a target, and what they miss."""
    for case in record["cases"]:
        name = case.get("name") or case.get("axis") or name_layer(case)
        for seen in case.get("comparisons", ()):
            for ratio in ("faster", "leaner"):
                target = seen[f"{ratio}_target"]
                if target is not None and seen[ratio] < target:
                    yield name, f"{seen[ratio]:.3f}× {ratio} than {seen['opponent']}, not {target:g}×"
        if case.get("limit") is not None and case["measurements"][OURS]["mebibytes"] > case["limit"]:
            yield name, f"{case['measurements'][OURS]['mebibytes']:.0f} MB, more than {case['limit']:.0f}"
        if not case.get("reached", True):
            yield name, "not reached"
    if "targets" in record:
        yield from find_small_misses(record)
    if "memory" in record and record["memory"][1] > growth_cases.MEMORY * record["memory"][0]:
        yield "memory", f"grows from {record['memory'][0]:.0f} to {record['memory'][1]:.0f} MB"


def find_small_misses(record: dict) -> Iterator[tuple[str, str]]:
    """The same of small layers, whose targets are for a weight for each pair."""
    cases = [case for case in record["cases"] if case.get("weights", "pairs") == "pairs"]
    for case in cases:
        if case["faster"] < record["targets"]["each"]:
            yield name_layer(case), f"{case['faster']:.3f}×, not {record['targets']['each']:g}×"
    mean = statistics.geometric_mean(case["faster"] for case in cases)
    if mean < record["targets"]["mean"]:
        yield "mean", f"{mean:.3f}×, not {record['targets']['mean']:g}×"


def name_layer(case: dict) -> str:
    return "{routing}-{children}-{examples}-{task}-{threads}".format(**case)


@pytest.mark.parametrize("name", sorted(RECORDS.keys() - WITHOUT_TARGETS))
def test_recorded_cases_reach_their_targets(name: str) -> None:
    missed = dict(find_misses(RECORDS[name]))
    known = {case for record, case in KNOWN_MISSES if record == name}
    assert missed.keys() == known, missed


def test_records_without_targets_have_none() -> None:
    assert all("cases" not in RECORDS[name] for name in WITHOUT_TARGETS)


SEEN = {"opponent": "einsum", "faster": 2.0, "leaner": 2.0, "faster_target": 1.0, "leaner_target": None}
SMALL = {"routing": "fm", "children": 32, "examples": 1, "task": "training", "threads": 1}


@pytest.mark.parametrize(
    ("record", "missed"),
    [
        ({"cases": [{"name": "x", "comparisons": [SEEN]}]}, []),
        ({"cases": [{"name": "x", "comparisons": [SEEN | {"faster": 0.9}]}]}, ["x"]),
        ({"cases": [{"name": "x", "comparisons": [SEEN | {"leaner_target": 3.0}]}]}, ["x"]),
        ({"cases": [{"name": "x", "limit": 5, "measurements": {OURS: {"mebibytes": 6}}}]}, ["x"]),
        ({"cases": [{"axis": "parents", "reached": False}], "memory": [1.0, 2.0]}, ["parents", "memory"]),
        ({"cases": [SMALL | {"faster": 0.9}], "targets": {"each": 1, "mean": 1.3}}, ["fm-32-1-training-1", "mean"]),
        (
            {
                "cases": [SMALL | {"faster": 2.0}, SMALL | {"faster": 0.5, "weights": "shared"}],
                "targets": {"each": 1, "mean": 1.3},
            },
            [],
        ),
    ],
)
def test_misses_are_found(record: dict, missed: list[str]) -> None:
    assert [name for name, _ in find_misses(record)] == missed
