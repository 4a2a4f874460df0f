"""The names of classes are the model's own: data that were renamed since are refused, and never change an answer."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps as tc
from tests.lab.evaluation.tiny_runs import tiny_recipe, tiny_run
from torchcaps.cli import main
from torchcaps.lab.recipes import change
from torchcaps.lab.training import Run, checkpoints

NAMES = ("bird", "cat", "dog")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run on three folders of images."""
    numbers = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in NAMES:
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            for number in range(3):
                Image.fromarray(numbers.integers(0, 255, (28, 28), dtype=np.uint8)).save(folder / f"{number}.png")
    recipe = tiny_recipe("--data.limit", "9", "--data.val-size", "0", "--data.test-limit", "9")
    recipe = change(recipe, {"data.train": f"folder:{tmp_path / 'pets'}", "model.classes": 3})
    return tiny_run(tmp_path / "run", recipe=recipe)


def rename(run: Run, before: str, after: str) -> Path:
    pets = run.folder.parent / "pets"
    for split in ("train", "test"):
        (pets / split / before).rename(pets / split / after)
    return pets / "test"


def test_predict_says_the_names_of_the_training(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    image = str(run.folder.parent / "pets" / "test" / "dog" / "0.png")
    assert main(["predict", str(run.folder), image, "--json"]) == 0
    before = json.loads(capsys.readouterr().out)[0]["presence"]
    assert set(before) == set(NAMES)
    rename(run, "bird", "zebra")  # now the last in the order of names
    assert main(["predict", str(run.folder), image, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["presence"] == before


@pytest.mark.parametrize("words", [("evaluate",), ("explain", "--only", "iterations")])
def test_renamed_data_are_refused_by_name(run: Run, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    rename(run, "bird", "zebra")
    assert main([words[0], str(run.folder), *words[1:]]) == 2
    said = capsys.readouterr().err
    assert "the model knows no 'zebra', and folder:" in said
    assert "pets has no 'bird'" in said


def test_data_in_another_order_are_matched_by_name(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    assert main(["evaluate", str(run.folder), "--json", str(out)]) == 0
    before = json.loads(out.read_text())[0]["per_class"]
    # The same images under the same names, in a folder that has no birds: its first class is the model's second.
    pets = run.folder.parent / "pets"
    assert main(["evaluate", str(run.folder), "--data", f"folder:{_without(pets, 'bird')}", "--json", str(out)]) == 0
    after = json.loads(out.read_text())[0]["per_class"]
    assert [line["name"] for line in after] == list(NAMES)
    assert [line["hit"] for line in after[1:]] == [line["hit"] for line in before[1:]]


def _without(pets: Path, name: str) -> Path:
    for path in pets.glob(f"*/{name}/*"):
        path.unlink()
    for folder in pets.glob(f"*/{name}"):
        folder.rmdir()
    return pets


def test_a_recipe_that_prepares_otherwise_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Run(run.folder, change(run.recipe, {"transforms.pad": 3}), "smoke").write()
    assert main(["evaluate", str(run.folder)]) == 2
    assert "pad=3" in (said := capsys.readouterr().err)
    assert "but the model was trained with" in said


def test_a_model_that_is_not_the_records_is_refused(run: Run, tmp_path: Path) -> None:
    record = {"format": 1, "weights_sha256": tc.models.checksum(run.model().state_dict())}
    (run.folder / "record.json").write_text(json.dumps(record))
    assert run.model().class_names == NAMES
    other = run.model()
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    tc.models.save(other, run.folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"is not the model of this run: the SHA-256 of its .* record\.json"):
        run.model()


def test_checkpoints_of_numbers_that_are_not_finite_are_refused(run: Run) -> None:
    weights = {f"model.{name}": tensor * float("nan") for name, tensor in run.model().state_dict().items()}
    checkpoints.write(run.checkpoints, 3, {}, weights)
    with pytest.raises(ValueError, match=r"step-00000003\.safetensors: .* numbers that are not finite"):
        run.model("last")


def test_load_gives_a_model_with_its_names_and_preprocessing(run: Run, tmp_path: Path) -> None:
    images = torch.rand(2, 1, 28, 28)
    for path in (run.folder, run.folder / "model.safetensors", tmp_path / "alone.safetensors"):
        if path.name == "alone.safetensors":
            path.write_bytes((run.folder / "model.safetensors").read_bytes())
        model = tc.load(path)
        assert not model.training
        assert model.class_names == NAMES
        assert model.preprocess is not None
        assert torch.equal(model.preprocess(images), images)  # this recipe pads, and crops the middle in evaluation
        assert model(model.preprocess(images)).logits.shape == (2, 3)
