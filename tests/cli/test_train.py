"""``torchcaps train``, as people use it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.training import tiny
from tests.lab.training.test_killing import ROOT
from torchcaps import data
from torchcaps.cli import main
from torchcaps.cli.train import Train
from torchcaps.lab.evaluation import evaluation
from torchcaps.lab.training import Run, loop, scoring

TINY = ["quickstart", "--scale", "smoke", "--no-report", "--loss.reconstruction", "0"]
NARROW = ["--model.stem-channels", "4", "--model.primary-caps", "2", "--model.no-decoder"]


def test_a_recipe_with_changes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, *NARROW, "--routing.num-iters", "1", "--seed", "5"]) == 0
    (folder,) = Path("runs").glob("quickstart-smoke-*-seed5")  # its name says what was changed
    run = Run.open(folder)
    assert (run.recipe.routing.num_iters, run.recipe.model.stem_channels, run.scale) == (1, 4, "smoke")
    record = run.record()
    assert record is not None
    assert "--routing.num-iters" in record["overrides"]
    said = capsys.readouterr().out
    assert "\x1b" not in said, "no escape codes in a log"
    assert "test accuracy" in said
    assert "95 % interval" in said
    assert "target: 97.5 %" in said
    assert f"torchcaps evaluate {folder}" in said
    assert main(["train", *TINY, *NARROW, "--routing.num-iters", "1", "--seed", "5"]) == 2
    assert "has a run in it already; go on with --resume" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(folder), "--no-report"]) == 0
    assert "finished already" in capsys.readouterr().out
    (folder / "record.json").unlink()
    assert main(["train", "--resume", "--out", str(folder), "--no-report"]) == 0
    again = run.record()
    assert again is not None
    assert again["overrides"] == record["overrides"], "resumed or not, a record says how the run was started"
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(folder), "--seed", "1"]) == 2
    assert "a run is resumed as it was; leave out --seed 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["quikstart"], "did you mean 'quickstart'"),
        (["quickstart", "--scale", "smoke", "--optimzer.lr", "1"], "--optimizer.lr"),
        (["quickstart", "--scale", "smoke", "--epochs", "0"], "0 epochs train nothing; give --epochs more than 0"),
        (["quickstart", "--scale", "smoke", "--epochs", "-1"], "-1 epochs train nothing; give --epochs more than 0"),
        (["quickstart", "--scale", "smoke", "--max-steps", "0"], "0 steps train nothing; give --max-steps at least 1"),
        (["quickstart", "--scale", "smoke", "--threads", "0"], "threads is 0; give at least 1"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_or_two(tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words]) == 2
    heard = capsys.readouterr().err
    assert said in heard
    assert heard.count("\n") <= 3
    assert not list(tmp_path.iterdir())


def test_words_for_the_recipe_are_left_to_it():
    train = Train.parse(["quickstart", "--epochs", "3", "--out", "there", "--model.routing", "em", "--compile"])
    assert (train.recipe, train.out) == ("quickstart", Path("there"))
    assert train.overrides == ("--epochs", "3", "--model.routing", "em", "--compile")


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, kind):
    command = [sys.executable, "-m", "torchcaps", "train", *TINY, *NARROW, "--out", "run"]
    command += ["--epochs", "1e6", "--max-steps", "1000000", "--data.limit", "100", "--data.val-size", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    metrics, end = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(kind)
    said = child.communicate(timeout=120)[1].decode()
    assert child.returncode == 130, said
    assert "which is saved; to go on:\n  torchcaps train --resume --out run" in said
    assert "Traceback" not in said
    assert list((tmp_path / "run" / "checkpoints").glob("*.json"))
    assert len(tiny.untimed(tmp_path / "run")) > 0


def test_each_split_is_loaded_once_and_the_test_set_evaluated_once(tmp_path, monkeypatch):
    loaded: list[tuple[str, str]] = []
    evaluated: list[int] = []
    load, run_model = data.load, scoring.run_model

    def count_load(name: str, split: str, *rest, **more):
        loaded.append((name, split))
        return load(name, split, *rest, **more)

    def count_evaluation(model, loader, *rest, **more):
        evaluated.append(len(loader))
        return run_model(model, loader, *rest, **more)

    monkeypatch.setattr(data, "load", count_load)
    for module in (loop, evaluation):
        monkeypatch.setattr(module, "run_model", count_evaluation)
    small = ["quickstart", "--scale", "smoke", *NARROW, "--loss.reconstruction", "0", "--data.test-limit", "13"]
    assert main(["train", *small, "--out", str(tmp_path / "run")]) == 0
    assert sorted(loaded) == [("mnist_sample", "test"), ("mnist_sample", "train")]
    assert evaluated == [13]
    page = (tmp_path / "run" / "report.html").read_text()
    record = Run.open(tmp_path / "run").record()
    assert record is not None
    assert f"{100 * record['metrics']['accuracy']:.2f} %" in page, "the report shows the test of the training"
