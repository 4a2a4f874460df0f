"""The recorded benchmarks reach their targets: a record with a miss does not land unnoticed."""

import json
from pathlib import Path

import pytest

from benchmarks.cases import OURS
from benchmarks.misses import find_misses

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "records"
RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
WITHOUT_TARGETS = {"convolutions", "costs", "generated-data", "limits"}
"""What cost models and limits are fitted to (``tests/votes``, ``tests/test_convolution.py``), and rates."""

KNOWN_MISSES: dict[tuple[str, str], str] = {}
"""The record and the case of each miss, with the reason why it stands."""


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
