"""What people type: evaluate and predict, on runs, on model files, on data and images of their own."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import torchcaps as tc
from tests.lab.evaluation.tiny_runs import tiny_recipe, tiny_run
from torchcaps import data
from torchcaps.cli import main
from torchcaps.data.folder import FolderDataset
from torchcaps.lab.evaluation.own_images import read_image
from torchcaps.lab.recipes import build_loss
from torchcaps.lab.reports.words import text_table
from torchcaps.lab.training import Run, checkpoints, score


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("runs")
    return tiny_run(folder / "first"), tiny_run(folder / "second", "--seed", "1")


def own_folder(place: Path, size: tuple[int, int] = (28, 28), classes: tuple[str, ...] = ("3", "7")) -> Path:
    """Digits of the sample as a folder of files, two of each class."""
    examples = data.load("mnist_sample", "test")
    batch = examples.batch(torch.arange(200))
    for name in classes:
        folder = place / name
        folder.mkdir(parents=True)
        chosen = (batch.label == int(name)).nonzero()[:2, 0].tolist()
        for number in chosen:
            pixels = (batch.image[number, 0] * 255).to(torch.uint8).numpy()
            Image.fromarray(pixels).resize(size).save(folder / f"{number}.png")
    return place


def test_evaluate_counts_what_training_counts(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs
    out = tmp_path / "figures.json"
    assert main(["evaluate", str(first.folder), "--batch-size", "7", "--json", str(out)]) == 0
    expected = score(first.model(), first.loader("test"), build_loss(first.recipe))
    (found,) = json.loads(out.read_text())
    assert (found["correct"], found["total"]) == (expected.correct, expected.total)
    assert found["interval"] == pytest.approx(expected.interval)
    printed = capsys.readouterr().out
    assert f"{expected.correct}" in printed
    assert "precision" in printed
    assert "balanced" in printed
    assert "majority class" in printed
    assert found["balanced_accuracy"] == expected.balanced_accuracy
    assert found["majority_share"] == expected.majority_share
    matrix = printed[printed.index("confusion matrix") :].splitlines()[2:12]  # as training promises in its last lines
    counts = [[int(word.replace("·", "0")) for word in line.split()[1:]] for line in matrix]
    assert counts == found["confusion"]
    assert "\x1b" not in printed


def test_evaluate_makes_ensembles(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (str(run.folder) for run in runs)
    out = tmp_path / "figures.json"
    assert main(["evaluate", first, second, "--ensemble", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [each["run"] for each in found] == [first, second, "ensemble of 2"]
    models = [run.model() for run in runs]
    batch = runs[0].loader("test").batch(torch.arange(40))
    with torch.inference_mode():
        mean = torch.stack([model(*batch.inputs).logits.sigmoid() for model in models]).mean(0)
    assert found[-1]["correct"] == int((mean.argmax(-1) == batch.label).sum())
    assert "ensemble of 2" in capsys.readouterr().out
    assert main(["evaluate", first, "--ensemble"]) == 2


def test_evaluate_averages_crops(runs, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs  # its preparation pads by two, so there is room for crops
    assert main(["evaluate", str(first.folder), "--crops", "5"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(first.folder), "--crops", "50"]) == 2
    assert "crops" in capsys.readouterr().err


def test_evaluate_on_a_folder_of_ones_own(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs
    out = tmp_path / "figures.json"
    own = own_folder(tmp_path / "own")
    assert main(["evaluate", str(first.folder), "--data", f"folder:{own}", "--json", str(out)]) == 0
    (found,) = json.loads(out.read_text())
    assert found["total"] == 4
    counts = {line["name"]: line["total"] for line in found["per_class"]}
    assert counts["3"] == 2  # by name, not the first class of the folder
    assert counts["7"] == 2
    assert counts["0"] == 0
    capsys.readouterr()
    large = own_folder(tmp_path / "large", size=(32, 32))
    assert main(["evaluate", str(first.folder), "--data", f"folder:{large}", "--json", str(out)]) == 0
    assert "4 images resized to 28×28" in capsys.readouterr().err
    np.savez(tmp_path / "large.npz", images=np.zeros((4, 32, 32), np.uint8), labels=np.arange(4))
    assert main(["evaluate", str(first.folder), "--data", f"arrays:{tmp_path / 'large.npz'}"]) == 2
    assert "inputs of 1×32×32" in (said := capsys.readouterr().err)
    assert "takes 1×28×28" in said
    (own / "3").rename(own / "cat")
    assert main(["evaluate", str(first.folder), "--data", f"folder:{own}"]) == 2
    assert "2 classes (7, cat)" in capsys.readouterr().err


def test_escapes_in_names_of_classes_are_shown() -> None:
    assert text_table([("cat\x1b[2J", "1")], ("class", "n")) == "class       n\ncat\\x1b[2J  1"


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for place, message in (("empty", "is no run folder"), ("notes.txt", "no .safetensors"), ("nowhere", "no such")):
        assert main(["evaluate", str(tmp_path / place)]) == 2
        assert message in capsys.readouterr().err


def test_a_checkpoint_can_be_evaluated(runs, tmp_path: Path) -> None:
    first, second = runs
    weights = {f"model.{name}": tensor for name, tensor in second.model().state_dict().items()}
    checkpoints.write(first.checkpoints, 7, {}, weights)  # of the other run's weights
    files = [first.checkpoints / "step-00000007.safetensors", second.folder]
    out = tmp_path / "figures.json"
    assert main(["evaluate", *map(str, files), "--json", str(out)]) == 0
    one, other = json.loads(out.read_text())
    assert one["loss"] == other["loss"]
    assert one["confusion"] == other["confusion"]


@pytest.fixture
def digit(tmp_path: Path) -> Path:
    """A photo of a kind: color, wide, dark on bright."""
    example = data.load("mnist_sample", "test")[0].image[0]
    pixels = np.full((60, 90, 3), 250, dtype=np.uint8)
    pixels[2:58, 17:73] -= (example.numpy().repeat(2, 0).repeat(2, 1)[..., None] * 240).astype(np.uint8)
    path = tmp_path / "photo.jpg"
    Image.fromarray(pixels).save(path, quality=95)
    return path


def test_predict_says_what_it_did_to_an_image(runs, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs
    assert main(["predict", str(first.folder), str(digit), "--top", "2"]) == 0
    said = capsys.readouterr()
    assert "color → gray; the middle 60×60 of 90×60; scaled from 60×60 to 28×28" in said.out
    assert said.out.count(" %") == 2
    assert "try --fit for photos of digits, or --invert" in said.err
    assert main(["predict", str(first.folder), str(digit), "--invert", "--json", "--threshold", "0"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert len(found["presence"]) == 10
    assert found["changes"][-1] == "inverted"
    assert found["classes"] == [next(iter(found["presence"]))]


def test_predict_agrees_with_the_model(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs
    own = own_folder(tmp_path / "own")
    files = sorted(own.rglob("*.png"))
    assert main(["predict", str(first.folder), *map(str, files), "--json", "--threshold", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = first.model()
    for path, each in zip(files, found, strict=True):
        pixels = torch.from_numpy(np.array(Image.open(path)))[None, None] / 255
        with torch.inference_mode():
            presence = model(pixels).logits.sigmoid()[0]
        assert each["changes"] == []
        assert each["presence"]["3"] == pytest.approx(float(presence[3]), abs=1e-6)
        assert each["classes"] == [str(int(presence.argmax()))]


def test_a_bad_file_does_not_stop_the_others(runs, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runs
    broken = digit.with_name("broken.png")
    broken.write_bytes(b"\x89PNG nothing")
    gone = digit.with_name("gone.png")
    escape = digit.with_name("clear\x1b[2J.png")
    files = [broken, gone, escape, digit.parent, digit]
    assert main(["predict", str(first.folder), *map(str, files)]) == 2
    said = capsys.readouterr()
    assert f"{broken}: not a whole image" in said.err
    assert f"{digit.parent}: is a folder; name image files" in said.err
    assert "clear\\x1b[2J.png: no such file" in said.err
    assert "_Measured" not in said.err
    assert "\x1b" not in said.err + said.out
    assert f"{gone}: no such file" in said.err
    assert str(digit) in said.out


def test_fit_reads_photos_of_digits_and_no_class_is_likely(digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = int(data.load("mnist_sample", "test")[0].label)
    assert main(["predict", "shipped", str(digit)]) == 0
    assert "no class is likely" in capsys.readouterr().out
    assert main(["predict", "shipped", str(digit), "--fit", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["classes"] == [str(label)]
    assert found["changes"] == ["color → gray", "strokes of 90×60 fitted to 28×28"]
    blank = digit.with_name("blank.png")
    Image.new("L", (50, 50), 200).save(blank)
    assert main(["predict", "shipped", str(blank), "--fit"]) == 2
    assert f"{blank}: nothing stands out" in capsys.readouterr().err
    for options in (["--fit", "--invert"], ["--threshold", "50"]):
        assert main(["predict", "shipped", str(digit), *options]) == 2


def test_predict_reads_what_training_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, size in enumerate([(40, 60), (90, 30), (33, 33), (200, 300)]):
        place = tmp_path / "photos" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (*size, 4 - number % 2), dtype=np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 1 + number
        Image.fromarray(pixels).save(place / f"{number}.{'jpg' if number % 2 else 'png'}", exif=exif)
    examples = FolderDataset(tmp_path / "photos", "all")
    for number, path in enumerate(examples.paths):
        image, _ = read_image(path, (3, 128, 128))
        torch.testing.assert_close(image, examples[number].image, rtol=0, atol=0)


def test_predict_from_a_model_file(tmp_path: Path, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tc.models.create("sabour2017_smallnorb", stem_channels=4, primary_caps=2, image_size=24)
    path = tmp_path / "own.safetensors"
    tc.models.save(model, path)
    assert main(["predict", str(path), str(digit)]) == 0
    said = capsys.readouterr().out
    assert "the one view used for all 2" in said
    assert "scaled from 60×60 to 24×24" in said
    named = tmp_path / "named.safetensors"
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata()) | {"classes": json.dumps(["animal", "human", "plane", "truck", "car"])}
    save_file(model.state_dict(), named, metadata=header)
    assert main(["predict", str(named), str(digit), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert set(found["presence"]) == {"animal", "human", "plane", "truck", "car"}
    assert main(["evaluate", str(named)]) == 2
    assert "name some with --data" in capsys.readouterr().err


def test_runs_without_their_data_still_predict(tmp_path: Path, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tiny_recipe()
    run = tiny_run(tmp_path / "run", recipe=recipe)
    gone = replace(recipe, data=replace(recipe.data, train=f"arrays:{tmp_path / 'gone.npz'}"))
    Run(run.folder, gone, "smoke").write()
    assert main(["predict", str(run.folder), str(digit)]) == 0
    assert "to 28×28" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["evaluate", "explain", "predict"])
@pytest.mark.parametrize(("device", "message"), [("gpu", "no device 'gpu'"), ("cuda", "torch finds no CUDA here")])
def test_a_device_that_is_not_there(
    command: str, device: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([command, "shipped", *(["7.png"] if command == "predict" else []), "--device", device]) == 2
    assert message in capsys.readouterr().err
