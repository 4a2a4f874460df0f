"""Run folders of strangers: nothing is written elsewhere, nothing is obeyed, and what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps as tc
from tests.lab.evaluation.tiny_runs import tiny_run
from torchcaps.cli import main
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.lab.recipes import change
from torchcaps.lab.training import Run
from torchcaps.lab.training.records import label, slug, write_record
from torchcaps.models import Training

HOSTILE = ("../../out", "/etc/out", "..", "a/../../out", "~/out", "a\x1b[2J", "a\nb", "x" * 500, "", 3, None, ["a"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return tiny_run(tmp_path / "run")


def change_recipe(run: Run, change) -> None:
    path = run.folder / "recipe.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize("value", HOSTILE)
def test_names_and_scales_that_could_be_paths_are_refused(run: Run, value: Any) -> None:
    change_recipe(run, lambda found: found["recipe"].update(name=value))
    with pytest.raises(ValueError, match="a recipe is named in letters"):
        Run.open(run.folder)
    change_recipe(run, lambda found: (found["recipe"].update(name="quickstart"), found.update(scale=value)))
    if value == "":
        assert Run.open(run.folder).scale == ""  # a recipe of one's own has no scale
        return
    with pytest.raises(ValueError, match=r"recipe\.json: scale is .*; expected a word"):
        Run.open(run.folder)


@pytest.mark.parametrize("value", [value for value in HOSTILE if isinstance(value, str)])
def test_no_record_is_written_outside_the_results(run: Run, tmp_path: Path, value: str) -> None:
    assert "/" not in slug(value)
    assert not slug(value).startswith(".")
    assert Path(label(value, 0, [value])).name == label(value, 0, [value])
    renamed = Run(run.folder, change(run.recipe, {"name": value[:100]}), "smoke", (value[:100],))
    write_record(renamed, {"format": 1}, tmp_path / "results")
    written = [path for path in tmp_path.rglob("*.json") if run.folder not in path.parents]
    assert len(written) == 1
    assert tmp_path / "results" in written[0].resolve().parents


@pytest.mark.parametrize("file", ["recipe.json", "record.json", "metrics.jsonl"])
@pytest.mark.parametrize(
    "content", ["[]\n", "[" * 100_000 + "\n", "{}\n", "null\n", "\x00\n", '{"format": 1}\n', "3\n"]
)
def test_json_of_any_kind_is_read_or_refused_by_name(run: Run, file: str, content: str, capsys) -> None:
    (run.folder / file).write_text(f"{content}\n")
    code = main(["evaluate", str(run.folder)])
    said = capsys.readouterr().err
    assert code in (0, 2)
    if code == 2:
        assert file in said
        assert "\x00" not in said


def test_sizes_of_a_recipe_have_limits(run: Run) -> None:
    change_recipe(run, lambda found: found["recipe"]["model"].update(stem_channels=10**9))
    with pytest.raises(ValueError, match=r"recipe\.model: stem_channels is 1000000000; expected numbers up to"):
        Run.open(run.folder)


def test_names_of_classes_are_shown_and_not_obeyed(run: Run, tmp_path: Path, capsys) -> None:
    pytest.importorskip("matplotlib")
    names = ("\x1b[2J\x1b]0;owned\x07", r"$\frac{$", "[/red]", "<script>alert(1)</script>", "a\nb", *"56789")
    path = tmp_path / "named.safetensors"
    tc.models.save(run.model(), path, Training(names))
    shown = tc.load(path).class_names
    assert shown is not None
    assert shown[:2] == (r"\x1b[2J\x1b]0;owned\x07", r"$\frac{$")
    Image.fromarray(np.zeros((28, 28), dtype=np.uint8)).save(tmp_path / "a.png")
    assert main(["predict", str(path), str(tmp_path / "a.png"), "--top", "10"]) == 0
    out = capsys.readouterr().out
    assert r"\x1b[2J" in out
    assert not any(letter in out for letter in "\x1b\x07")
    assert out.count("\n") == 1


def test_dollar_signs_in_figures_are_dollar_signs() -> None:
    figures = pytest.importorskip("torchcaps.lab.explanation.figures")
    figure = figures.new_figure(2.0, 2.0, r"a $\frac{ title")

    @figures.drawing
    def draw():
        panel = figure.subplots()
        panel.set_title(r"$\undefined$")
        panel.bar([r"$\frac{$", "b"], [1, 2])
        figures.legend_below(figure, panel.patches[:1], [r"$x_"])
        return figure

    assert figures.render(draw(), "png").startswith(b"\x89PNG")


def test_a_message_cannot_move_the_cursor(capsys) -> None:
    assert main(["evaluate", "no\x1b[2Jwhere"]) == 2
    assert r"no\x1b[2Jwhere" in capsys.readouterr().err


def test_weights_of_a_stranger_do_not_run_code(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="is no safetensors file"):
        tc.load(path)


def test_evaluation_makes_no_folder_that_a_recipe_names(run: Run, tmp_path: Path) -> None:
    change_recipe(run, lambda found: found["recipe"]["text"].update(folder=str(tmp_path / "elsewhere")))
    opened = open_model(run.folder).run
    assert opened is not None
    assert opened.recipe.text.folder == ""
    (tmp_path / "elsewhere").mkdir()
    opened = open_model(run.folder).run
    assert opened is not None
    assert opened.recipe.text.folder == str(tmp_path / "elsewhere")
