"""The table of results is what the records say, and records that are wrong are refused by name."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import script
from torchcaps.cli import main
from torchcaps.lab.evaluation import over_seeds
from torchcaps.lab.reports import experiments, fill, parse_record, read_records, results_table
from torchcaps.lab.reports.results import NOTHING
from torchcaps.lab.training import interval

ROOT = Path(__file__).resolve().parents[3]


def record(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "format": 1,
        "recipe": "sabour2017/mnist",
        "scale": "laptop",
        "seed": 0,
        "model": "sabour2017_mnist",
        "parameters": 8_215_568,
        "data": {"train": "mnist", "test": "mnist", "sizes": {"train": 55_000, "test": 10_000}},
        "metrics": {"accuracy": 0.99, "error": 0.01, "interval": [0.98, 0.995], "correct": 9_900, "total": 10_000},
        "claim": {"table": "Table 1, row 4", "metric": "error", "target": 0.25, "note": ""},
        "steps": 100,
        "epochs": 1.0,
        "seconds": 200.0,
        "commit": None,
        "machine": {"cores": 2},
        "torch": "2.13.0",
        "overrides": [],
    }
    return copy.deepcopy(made) | changes


def scored(correct: int, total: int = 1000) -> dict[str, Any]:
    return {"accuracy": correct / total, "correct": correct, "total": total}


def test_one_run_has_wilsons_interval_in_the_claims_own_measure() -> None:
    (found,) = experiments([parse_record(record())])
    assert found.value == pytest.approx(0.01)
    assert found.interval == pytest.approx(interval(100, 10_000))
    recipe, paper, ours, scale, data, seeds, parameters, time = found.cells()
    assert (recipe, scale, seeds, parameters) == ("sabour2017/mnist", "laptop", "0", "8,215,568")
    assert paper == "0.25 % error (Table 1, row 4)"
    assert ours == "1.00 % (0.82–1.21)"
    assert (data, time) == ("mnist, 55,000 examples", "3 min 20 s")


def test_several_seeds_are_one_line_with_students_interval() -> None:
    claim = {"table": "Table 2", "metric": "accuracy", "target": None}
    runs = [
        parse_record(record(seed=seed, metrics=scored(correct), claim=claim, overrides=["--seed", str(seed)]))
        for seed, correct in ((2, 981), (0, 975), (1, 969))
    ]
    (found,) = experiments(runs)
    assert found.value == pytest.approx(0.975)
    assert found.interval == pytest.approx(over_seeds([0.975, 0.969, 0.981]))
    assert found.cells()[5] == "0, 1, 2"
    assert found.cells()[1] == "no figure (Table 2)"


def test_other_experiments_are_other_lines_and_smoke_is_none() -> None:
    runs = [record(), record(scale="smoke"), record(overrides=["--epochs", "3"]), record(scale="paper")]
    found = experiments(map(parse_record, runs))
    assert [each.cells()[3] for each in found] == ["laptop", "laptop (--epochs 3)", "paper"]


def test_the_table_is_markdown() -> None:
    lines = results_table([parse_record(record())]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| `sabour2017/mnist` | 0.25 % error")
    assert results_table([]) == NOTHING


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2; this version reads format 1"),
        ({"seed": "0"}, "seed is '0'; expected a whole number"),
        ({"seed": True}, "seed is True; expected a whole number"),
        ({"metrics": {"accuracy": 0.5}}, "no field metrics.correct; it has accuracy"),
        ({"metrics": {"accuracy": 99.0, "correct": 99, "total": 100}}, "accuracy 99.0 is not 99 / 100"),
        ({"metrics": {"accuracy": 0.5, "correct": 3, "total": 2}}, "3 correct of 2"),
        ({"claim": {"table": "", "metric": "loss", "target": 1.0}}, "claim.metric 'loss'; there are 'accuracy'"),
        ({"data": {"train": "mnist", "test": "", "sizes": {"train": 1.5}}}, "data.sizes.train is 1.5"),
    ],
)
def test_wrong_records_are_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "laptop-seed0.json"
    path.write_text(json.dumps(record(**change)))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_records(tmp_path)
    assert str(path) in str(caught.value)


def test_what_is_no_json_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"recipe": ')
    with pytest.raises(ValueError, match=r"half\.json is no JSON file"):
        read_records(tmp_path)
    with pytest.raises(ValueError, match="no such folder of records"):
        read_records(tmp_path / "nowhere")


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sabour2017-mnist"
    folder.mkdir()
    (folder / "laptop-seed0.json").write_text(json.dumps(record()))
    assert main(["report", "--results", str(tmp_path)]) == 0
    plain = capsys.readouterr().out
    assert plain.splitlines()[0].startswith("recipe")
    assert "1.00 % (0.82–1.21)" in plain
    assert "\x1b" not in plain
    assert main(["report", "--results", str(tmp_path), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| recipe |")
    page = tmp_path / "table.html"
    assert main(["report", "--results", str(tmp_path), "--html", str(page)]) == 0
    assert "1.00 % (0.82–1.21)" in page.read_text()
    assert main(["report", "--results", str(tmp_path / "nowhere")]) == 2


def test_marked_blocks_are_filled() -> None:
    begin, end = "<!-- results:begin -->", "<!-- results:end -->"
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    assert fill(page, "new") == f"before\n{begin}\nnew\n{end}\nafter\n"
    assert fill("nothing to fill", "new") == "nothing to fill"
    for broken in (begin, end, f"{end}{begin}", f"{begin}{begin}{end}"):
        with pytest.raises(ValueError, match="or neither"):
            fill(broken, "new")


def test_the_pages_say_what_the_records_say() -> None:
    assert script("reproduction/write_readme_tables").stale() == [], "run reproduction/write_readme_tables.py"


def test_the_command_reads_the_records_of_run_folders(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("good", json.dumps(record())),
        ("list", "[]"),
        ("deep", "[" * 100_000),
        ("lacking", json.dumps({"format": 1})),
        ("nan", json.dumps(record(metrics=scored(10) | {"accuracy": float("nan")}))),
        ("huge", json.dumps(record(seconds=10**400))),
    ):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "record.json").write_text(content)
    assert main(["report"]) == 0
    said = capsys.readouterr()
    assert "sabour2017/mnist" in said.out
    lines = said.err.splitlines()
    assert [line.partition(" runs/")[2].partition("/")[0] for line in lines] == [
        "deep",
        "huge",
        "lacking",
        "list",
        "nan",
    ]
    assert all(line.startswith("left out: runs/") for line in lines)
