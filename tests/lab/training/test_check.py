"""``torchcaps check``: what is wrong with a run folder, and what to do."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.training import tiny
from tests.lab.training.test_checkpoints import flip, remove
from torchcaps.cli import main
from torchcaps.lab.training import Run, TrainOptions, checkpoints, train


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    return train(tiny.recipe(), tmp_path_factory.mktemp("whole") / "run", options=TrainOptions(every=1))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def best(run: Run) -> Path:
    return checkpoints.names(run.checkpoints, run.checkpoint().step)[0]


def rename_format(run: Run) -> None:
    path = best(run).with_suffix(".json")
    path.write_text(path.read_text().replace("torchcaps-checkpoint-1", "torchcaps-checkpoint-5"))


CASES: dict[str, tuple[Callable[[Run], object], list[str]]] = {
    "model flipped": (
        lambda run: flip(run.folder / "model.safetensors"),
        [
            r"WRONG model.safetensors: .*damaged",
            "remedy: .*--resume.*builds it again",
            "WRONG cannot be predicted with",
        ],
    ),
    "model missing": (lambda run: remove(run.folder / "model.safetensors"), ["WRONG model.safetensors: is missing"]),
    "record cut": (
        lambda run: (run.folder / "record.json").write_text("[]"),
        ["WRONG record.json: .*holds a JSON list", "ok    can be resumed\n", "remedy: .*makes it again"],
    ),
    "record edited": (
        lambda run: (run.folder / "record.json").write_text('{"metrics": {"accuracy": 0.999}}'),
        ["WRONG record.json: its accuracy is 0.999"],
    ),
    "metrics": (
        lambda run: (run.folder / "metrics.jsonl").write_text("{}\n[]\n{}\n"),
        ["WRONG metrics.jsonl: line 2 is no JSON object"],
    ),
    "metrics edited": (
        lambda run: flip(run.folder / "metrics.jsonl"),
        [r"WRONG metrics.jsonl: (lines of it were changed|line \d+ is no)"],
    ),
    "best": (
        lambda run: flip(best(run)),
        ["WRONG checkpoints/step-.*is damaged", "WRONG best checkpoint", "ok    can be predicted with"],
    ),
    "format": (
        rename_format,
        ["has the format 'torchcaps-checkpoint-5'", "use the version of torchcaps that wrote it"],
    ),
    "recipe": (lambda run: remove(run.folder / "recipe.json"), ["WRONG recipe.json", "remedy: restore recipe.json"]),
    "seed": (
        lambda run: (run.folder / "recipe.json").write_text(
            (run.folder / "recipe.json").read_text().replace('"seed": 3', '"seed": 4')
        ),
        ["WRONG checkpoints: .*is of another run"],
    ),
    "data": (
        lambda run: (run.folder / "recipe.json").write_text(
            (run.folder / "recipe.json").read_text().replace("mnist_sample", "arrays:/nowhere.npz")
        ),
        ["WRONG data: .*no such file", "WRONG cannot be evaluated", "ok    can be predicted with"],
    ),
}


def test_a_whole_run_is_ok(whole: Run, capsys):
    before = contents(whole.folder)
    assert main(["check", str(whole.folder)]) == 0
    said = capsys.readouterr().out
    assert "WRONG" not in said
    for what in (
        "recipe.json",
        "checkpoints/step-00000008",
        "metrics.jsonl",
        "record.json",
        "model.safetensors",
        "data",
    ):
        assert f"ok    {what}" in said
    assert re.findall(r"ok    can be ([\w ]+)", said) == ["resumed", "evaluated", "predicted with"]
    assert contents(whole.folder) == before


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named_with_its_remedy(whole: Run, tmp_path, capsys, case):
    shutil.copytree(whole.folder, tmp_path / "run")
    spoil, expected = CASES[case]
    spoil(Run.open(tmp_path / "run"))
    before = contents(tmp_path / "run")
    assert main(["check", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().out
    for each in expected:
        assert re.search(each, said), f"{each!r} is not in\n{said}"
    assert contents(tmp_path / "run") == before
