"""The model that ships: small, what its record says, and ready for every command that takes a run."""

from hashlib import sha256
from pathlib import Path

import pytest
import torch
from PIL import Image

from torchcaps.cli import main
from torchcaps.data import load
from torchcaps.files import read_json
from torchcaps.lab.evaluation import evaluate
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.models.pretrained import FOLDER

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_small_and_names_its_record():
    about = read_json(FOLDER / "shipped.json")
    weights = (FOLDER / "model.safetensors").read_bytes()
    assert len(weights) == about["bytes"] < 2_000_000
    assert sha256(weights).hexdigest() == about["sha256"]
    record = read_json(FOLDER / "record.json")
    assert read_json(ROOT / about["record"]) | {"weights_sha256": None} == record | {"weights_sha256": None}
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    right, total = record["metrics"]["correct"], record["metrics"]["total"]
    assert f"{right} of the sample's {total:,} test digits, by [its record]({about['record']})" in said


def test_it_is_as_good_as_its_record_says(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject = open_model("shipped")
    assert subject.run is not None
    assert next(subject.model.parameters()).dtype == torch.float32
    found = evaluate(subject.model, subject.run.loader("test"), subject.loss)
    recorded = read_json(FOLDER / "record.json")["metrics"]
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
    assert (tmp_path / "explain" / "reconstructions.png").is_file()


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shipped").mkdir()
    with pytest.raises(ValueError, match="shipped is no run folder"):
        open_model("shipped")
