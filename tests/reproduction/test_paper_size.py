"""The plan of trainings at the papers' size: its recipes and options exist, and each row says how it is decided."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import torchcaps.lab.recipes as recipes
from reproduction.paper_size import page, train_queue
from reproduction.paths import RecordPaths
from tests.support import ROOT
from torchcaps.files import read_json, write_json

RECORD = ROOT / "reproduction" / "records" / "runs" / "sabour2017-mnist" / "laptop-epochs-2-seed0.json"
TRAININGS = train_queue.trainings()


def test_every_row_says_what_is_measured_and_how_it_is_decided():
    names = [name for name, _, _ in TRAININGS]
    assert len(set(names)) == len(names)
    for _, _, entry in TRAININGS:
        assert set(entry) == {"name", "recipe", "options", "seeds", "measure", "rule", "changes"}
        assert entry["measure"]
        assert entry["rule"]


@pytest.mark.parametrize("entry", {entry["name"]: entry for _, _, entry in TRAININGS}.values(), ids=lambda e: e["name"])
def test_options_are_options_of_the_recipe(entry: dict):
    options = list(entry["options"])
    scale = "paper"
    if "--scale" in options:
        at = options.index("--scale")
        scale = options[at + 1]
        del options[at : at + 2]
    assert scale in ("paper", "laptop")
    assert recipes.configure(entry["recipe"], scale, tuple(options)) != recipes.get(entry["recipe"], scale)


def test_a_training_that_has_begun_is_resumed(tmp_path: Path):
    _, seed, entry = TRAININGS[0]
    assert "--resume" not in train_queue.command(tmp_path, seed, entry)
    (tmp_path / "recipe.json").touch()
    assert "--resume" in train_queue.command(tmp_path, seed, entry)
    assert train_queue.state(tmp_path) == "begun"


def test_what_is_recorded_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    records, runs = tmp_path / "records", tmp_path / "runs"
    entry = {"name": "one", "recipe": "quickstart", "options": [], "seeds": [0, 1]}
    monkeypatch.setattr(train_queue, "trainings", lambda: [(f"one-seed{seed}", seed, entry) for seed in (0, 1)])
    monkeypatch.setattr(train_queue, "RECORDS", records)
    monkeypatch.setattr(train_queue, "step_back", lambda: None)
    _write_run(tmp_path / "elsewhere" / "one-seed0", correct=9968)
    train_queue.keep(tmp_path / "elsewhere" / "one-seed0", records)
    assert train_queue.state(runs / "one-seed0") == "recorded"
    trained = []

    def train(words: list[str], **_) -> subprocess.CompletedProcess:
        folder = Path(words[words.index("--out") + 1])
        _write_run(folder, correct=9970)
        trained.append(folder.name)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(train_queue.subprocess, "run", train)
    monkeypatch.setattr("sys.argv", ["train_queue.py", str(runs)])
    for _ in range(2):
        assert train_queue.main() == 0
    assert trained == ["one-seed1"]
    assert train_queue.state(runs / "one-seed1") == "recorded"


def test_what_a_finished_training_leaves(tmp_path: Path):
    _write_run(tmp_path / "runs" / "sabour2017-mnist-seed0", correct=9968)
    train_queue.keep(tmp_path / "runs" / "sabour2017-mnist-seed0", tmp_path / "records")
    assert page.read_curves(tmp_path / "records", "sabour2017-mnist") == {
        "sabour2017-mnist-seed0": [
            {"epoch": 15.0, "seconds": 3600.0, "accuracy": 0.99},
            {"epoch": 29.0, "seconds": 7000.0, "accuracy": 0.995},
            {"epoch": 30.0, "seconds": 7200.0, "accuracy": 0.996},
        ]
    }


def test_without_validation_the_curve_is_of_training(tmp_path: Path):
    lines = [
        {"kind": "train", "epoch": epoch, "seconds": 9.0, "accuracy": epoch / 4, "loss": 0.1}
        for epoch in (0.5, 1.0, 1.5)
    ]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    last_of_each_epoch = [
        {"epoch": 1.0, "seconds": 9.0, "accuracy": 0.25},
        {"epoch": 1.5, "seconds": 9.0, "accuracy": 0.375},
    ]
    assert train_queue.learning_curve(metrics) == {"examples": "training", "points": last_of_each_epoch}


@pytest.mark.parametrize(("correct", "falls_short"), [(9968, True), (9976, False)])
def test_the_page_leads_with_what_was_reached(tmp_path: Path, correct: int, falls_short: bool):
    _write_run(tmp_path / "runs" / "sabour2017-mnist-seed0", correct)
    train_queue.keep(tmp_path / "runs" / "sabour2017-mnist-seed0", tmp_path / "records")
    section = page.write_section(tmp_path / "records", RecordPaths(results=tmp_path / "none"), "images")
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 1
    assert f"| 0.25 % error (Table 1, row 5) | {(10000 - correct) / 100:.2f} % error (" in rows[0]
    assert "| 18 of 500 | 2 h 5 min |" in rows[0]
    assert "not trained yet: sabour2017-mnist-cnn (seed 0), " in section
    assert "sabour2017-affnist (seeds 0, 1, 2), " in section
    remark = "sabour2017-mnist: 0.07 % short of the paper, after 18 of its 500 epochs"
    ending = "; over the last fifth of them validation accuracy changed by +0.10 %."
    assert (f"- {remark}{ending}" in section) == falls_short
    assert f"images/{page.PICTURE}" in section


def test_error_is_drawn_against_time():
    figure = page.draw_error_by_time({"a": [{"epoch": 1.0, "seconds": 7200.0, "accuracy": 0.99}]}, 0.25)
    curve, line = figure.axes[0].get_lines()
    np.testing.assert_almost_equal(np.asarray(curve.get_xydata(), float), [[2.0, 1.0]])
    np.testing.assert_array_equal(line.get_ydata(), [0.25, 0.25])


def _write_run(folder: Path, correct: int) -> None:
    """A finished run, as one that was trained leaves it."""
    recorded = read_json(RECORD)
    recorded |= {"recipe": "sabour2017/mnist", "scale": "paper", "seconds": 7500.0}
    recorded["metrics"] |= {
        "correct": correct,
        "total": 10000,
        "accuracy": correct / 10000,
        "error": 1 - correct / 10000,
    }
    folder.mkdir(parents=True)
    write_json(folder / "record.json", recorded)
    reached = ((15.0, 3600.0, 0.99), (29.0, 7000.0, 0.995), (30.0, 7200.0, 0.996))
    lines = [{"kind": "train", "epoch": 1.0, "seconds": 100.0, "accuracy": 0.5}]
    lines += [{"kind": "val", "epoch": epoch, "seconds": time, "accuracy": share} for epoch, time, share in reached]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_only_a_part_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["train_queue.py", str(tmp_path), "--list", "--only", "sabour2017-affnist-cnn"])
    assert train_queue.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"waiting   sabour2017-affnist-cnn-seed{seed}" for seed in (0, 1, 2)
    ]
    monkeypatch.setattr("sys.argv", ["train_queue.py", str(tmp_path), "--only", "nothing"])
    with pytest.raises(SystemExit):
        train_queue.main()
    assert "no training begins with 'nothing'" in capsys.readouterr().err
