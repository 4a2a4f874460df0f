"""The models that ship: small, what their records say, and ready for every command that takes a run."""

from hashlib import sha256
from pathlib import Path

import pytest
import torch
from PIL import Image

from reproduction.comparison_plan import TITLES
from torchcaps.cli import main
from torchcaps.data import load
from torchcaps.files import read_json
from torchcaps.lab.evaluation import evaluate
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.models.pretrained import FOLDER, FOLDERS, describe_pretrained, list_pretrained

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list_pretrained())
def test_it_is_small_and_names_its_record(name: str):
    about = read_json(FOLDERS / name / "shipped.json")
    weights = (FOLDERS / name / "model.safetensors").read_bytes()
    assert len(weights) == about["bytes"] < 2_000_000
    assert sha256(weights).hexdigest() == about["sha256"]
    record = read_json(FOLDERS / name / "record.json")
    assert read_json(ROOT / about["record"]) | {"weights_sha256": None} == record | {"weights_sha256": None}


def test_every_routing_of_the_comparison_has_one():
    assert {describe_pretrained(name).routing for name in list_pretrained()} == set(TITLES)


def test_pages_say_what_the_records_say():
    about, record = read_json(FOLDER / "shipped.json"), read_json(FOLDER / "record.json")
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    right, total = record["metrics"]["correct"], record["metrics"]["total"]
    assert f"{right} of the sample's {total:,} test digits, by [its record]({about['record']})" in said


def test_trainings_that_were_repeated_differ_as_the_page_says():
    again = list((ROOT / "reproduction" / "records" / "shipped").iterdir())
    points = []
    for path in again:
        repeated = read_json(path)
        routing = repeated["overrides"][1]
        first = f"reproduction/records/runs/comparison-mnist-sample/laptop-model.routing-{routing}-seed0.json"
        points.append(abs(repeated["metrics"]["correct"] - read_json(ROOT / first)["metrics"]["correct"]) / 10)
    said = " ".join((ROOT / "docs" / "hub.md").read_text(encoding="utf-8").split())
    assert len(again) == 5
    assert f"the accuracies differ by {min(points)} to {max(points)} points" in said


@pytest.mark.parametrize("name", list_pretrained())
def test_it_is_as_good_as_its_record_says(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject = open_model(name)
    assert subject.run is not None
    assert subject.title == name
    assert next(subject.model.parameters()).dtype == torch.float32
    found = evaluate(subject.model, subject.run.loader("test"), subject.loss)
    recorded = read_json(FOLDERS / name / "record.json")["metrics"]
    assert found.total == recorded["total"] == 1000
    assert abs(found.correct - recorded["correct"]) <= 1  # float16 may turn an answer that was close


def test_predict_and_explain_take_it(tmp_path: Path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    example = load("mnist_sample", "test")[0]
    Image.fromarray((example.image[0] * 255).to(torch.uint8).numpy()).save(tmp_path / "digit.png")
    assert main(["predict", "shipped", "digit.png"]) == 0
    assert f"digit.png: {int(example.label)} " in capsys.readouterr().out
    assert main(["explain", "shipped", "--only", "reconstruction"]) == 0
    assert (tmp_path / "explain" / "shipped" / "reconstructions.png").is_file()
    assert main(["predict", "digits-em", "digit.png"]) == 0
    assert f"digit.png: {int(example.label)} " in capsys.readouterr().out
    assert main(["predict", "digits-en", "digit.png"]) == 2
    assert "no pretrained model of this name; did you mean 'digits-em'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["shipped", "digits-em"])
def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} is no run folder"):
        open_model(name)


def test_the_command_lists_them(capsys):
    assert main(["models", "digits"]) == 0
    said = capsys.readouterr().out
    for name in list_pretrained():
        assert (name in said) == ("digits" in name)
    assert describe_pretrained("digits-em").accuracy in said
    assert main(["models", "dgits-em"]) == 2
    assert "no model has 'dgits-em' in its name; did you mean 'digits-em'" in capsys.readouterr().err
