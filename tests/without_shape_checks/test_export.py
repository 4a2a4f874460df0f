"""``torchcaps export`` and ``torchcaps.export``: files that predict alone, and errors that say what is wrong."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

import torchcaps as tc
from tests.models import reduced
from torchcaps.cli import main
from torchcaps.models.pretrained import FOLDER

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: exporters cannot see through shape checks",
)
DIGITS = tc.data.load("mnist_sample", "test").batch(torch.arange(16))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that comes with the package, exported by the command with its decoder beside it."""
    folder = tmp_path_factory.mktemp("export")
    words = ["export", "shipped", "--out", f"{folder}/digits.onnx", "--decoder", f"{folder}/decoder.onnx"]
    assert main([*words, "--couplings"]) == 0
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes a second to make."""
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    tc.export.to_onnx(reduced.model("cnn_sabour2017_mnist"), path)
    return path


def forge(path: Path, folder: Path, change: Callable[[onnx.ModelProto], object]) -> Path:
    file = onnx.load(path)
    change(file)
    forged = folder / "forged.onnx"
    forged.write_bytes(file.SerializeToString())
    return forged


def set_metadata(key: str, text: str) -> Callable[[onnx.ModelProto], None]:
    def change(file: onnx.ModelProto) -> None:
        kept = [(each.key, each.value) for each in file.metadata_props if each.key != key]
        del file.metadata_props[:]
        for name, value in [*kept, (key, text)]:
            file.metadata_props.add(key=name, value=value)

    return change


def test_the_file_predicts_what_the_model_predicts(shipped: Path) -> None:
    model, exported = tc.load("shipped"), tc.load(shipped / "digits.onnx")
    assert isinstance(exported, tc.export.OnnxModel)
    assert exported.class_names == model.class_names
    assert exported.preprocess is not None
    wanted, found = model(DIGITS.image), exported(exported.preprocess(DIGITS.image))
    torch.testing.assert_close(found.logits, wanted.logits.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.capsules.pose, wanted.capsules.pose.detach(), rtol=1e-5, atol=1e-5)
    assert exported.run(DIGITS.image)["couplings_1"].shape == (16, 3, 288, 10)


def test_the_decoder_is_a_file_of_its_own(shipped: Path) -> None:
    model = tc.load("shipped")
    prediction = model(DIGITS.image, decode=DIGITS.label)
    session = onnxruntime.InferenceSession(shipped / "decoder.onnx")
    given = {"poses": prediction.capsules.pose.detach().numpy(), "chosen": DIGITS.label.numpy()}
    (image,) = session.run(["image"], given)
    np.testing.assert_allclose(np.asarray(image), prediction.reconstruction.detach().numpy(), atol=1e-5)


def test_metadata_say_what_a_program_needs(shipped: Path) -> None:
    file = onnx.load(shipped / "digits.onnx")
    metadata = {each.key: each.value for each in file.metadata_props}
    assert metadata["format"] == "torchcaps-onnx-1"
    assert json.loads(metadata["classes"]) == [str(number) for number in range(10)]
    assert json.loads(metadata["image_shape"]) == json.loads(metadata["input_shape"]) == [1, 28, 28]
    assert json.loads(metadata["range"]) == [0, 1]
    assert json.loads(metadata["preprocessing"]) == {"pad": 2}  # rotation is for training alone
    assert json.loads(metadata["model"])["name"] == "sabour2017_mnist"
    assert metadata["torchcaps.source"] == "quickstart-small"
    assert str(Path(tc.__file__).parent) not in (shipped / "digits.onnx").read_bytes().decode("latin-1")


def test_predict_reads_the_file_without_building_a_network(shipped: Path) -> None:
    pixels = (DIGITS.image[3, 0] * 255).byte().numpy()
    Image.fromarray(pixels).save(shipped / "digit.png")
    code = (
        "import sys, torchcaps.models.assembling as a, torchcaps.models.registry as r\n"
        "def refuse(*_, **__): raise AssertionError('a network was built')\n"
        "a.assemble = r.create = refuse\n"
        "from torchcaps.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["predict", "digits.onnx", "digit.png"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=shipped, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"digit.png: {int(DIGITS.label[3])} ")


def test_torch_export(tmp_path: Path) -> None:
    model = reduced.model("comparison").eval()
    tc.models.save(model, tmp_path / "model.safetensors")
    assert main(["export", str(tmp_path / "model.safetensors"), "--format", "torch"]) == 0
    kept = {"outputs": "", "format": ""}  # what to read
    program = torch.export.load(tmp_path / "model.pt2", extra_files=kept)
    assert (kept["outputs"], kept["format"]) == ("logits poses presences", "torchcaps-onnx-1")
    images = reduced.inputs(model, 5)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(images)[0], model(images).logits)


def test_a_layer_is_exported_by_example(tmp_path: Path) -> None:
    layer = tc.DenseCapsules(6, 4, 3, 5, routing="dynamic")
    children = tc.Capsules(torch.randn(2, 6, 4))
    tc.export.to_onnx(layer, tmp_path / "layer.onnx", children)
    file = onnx.load(tmp_path / "layer.onnx")
    assert [value.name for value in file.graph.input] == ["pose"]
    assert [value.name for value in file.graph.output] == ["parent_pose", "parent_score"]


class Branching(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 1 if inputs.sum() > 0 else inputs - 1


def test_what_cannot_be_traced_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot trace this Branching: Could not guard on data-dependent"):
        tc.export.to_onnx(Branching(), tmp_path / "file", torch.ones(2, 3))


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    plain, target = reduced.model("cnn_sabour2017_mnist"), tmp_path / "file"
    for message, change in {
        "a ConvNet has no capsules, so no couplings": lambda: tc.export.to_onnx(plain, target, couplings=True),
        "this model has no decoder": lambda: tc.export.to_onnx(plain, target, reconstruction=True),
        "give an example batch as inputs=": lambda: tc.export.to_onnx(torch.nn.Linear(2, 3), target),
        "give two or more": lambda: tc.export.to_onnx(torch.nn.Linear(2, 3), target, torch.zeros(1, 2)),
    }.items():
        kind = type(plain).__name__
        with pytest.raises(ValueError, match=message.replace("ConvNet", kind)):
            change()
    assert not target.exists()


def test_an_untrained_decoder_is_refused(tmp_path: Path) -> None:
    model = reduced.model("sabour2017_mnist")
    model.untrained = ("decoder",)
    with pytest.raises(ValueError, match="never trained"):
        tc.export.decoder_to_onnx(model, tmp_path / "decoder.onnx")


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("format", "torchcaps-onnx-9", "expected 'torchcaps-onnx-1'"),
        ("classes", "[1, 2]", "expected a JSON list of names"),
        ("classes", '["a", "b"]', "2 names for 4 classes"),
        ("input_shape", "[1, 70000000, 9]", "sizes up to"),
        ("input_shape", "[1, 8, 9]", "its metadata say"),
        ("input_shape", "null", "no input_shape"),
        ("input_shape", "{", "no JSON"),
    ],
)
def test_forged_metadata_are_refused(key: str, text: str, message: str, small: Path, tmp_path: Path) -> None:
    forged = forge(small, tmp_path, set_metadata(key, text))
    with pytest.raises(ValueError, match=message) as error:
        tc.export.load(forged)
    assert str(forged) in str(error.value)


def test_preprocessing_of_a_stranger_is_checked(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    forged = forge(small, tmp_path, set_metadata("classes", '["a", "b", "c", "d"]'))
    forged = forge(forged, tmp_path, set_metadata("preprocessing", '{"resize": 1000000}'))
    Image.new("L", (9, 7)).save(tmp_path / "a.png")
    assert main(["predict", str(forged), str(tmp_path / "a.png")]) == 2
    assert "resize" in capsys.readouterr().err


def test_damaged_files_are_refused(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    for damaged in (b"", b"no ONNX at all", content[: len(content) // 2]):
        (tmp_path / "damaged.onnx").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged\.onnx is no ONNX file|has the format None"):
            tc.export.load(tmp_path / "damaged.onnx")


def test_weights_outside_of_the_file_are_not_read(small: Path, tmp_path: Path) -> None:
    def point_outside(file: onnx.ModelProto) -> None:
        weight = max(file.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        size, weight.raw_data = len(weight.raw_data), b""
        weight.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "../secret", "offset": "0", "length": str(size)}.items():
            weight.external_data.add(key=key, value=value)

    (tmp_path / "secret").write_bytes(b"\0" * 10_000_000)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ValueError, match="no ONNX file that onnxruntime can run"):
        tc.export.load(forge(small, inside, point_outside))


def test_inputs_of_another_size_are_refused(small: Path) -> None:
    with pytest.raises(ValueError, match=r"takes batches of \(1, 7, 9\); got a batch of shape \(2, 1, 9, 7\)"):
        tc.export.load(small)(torch.zeros(2, 1, 9, 7))


def test_a_mask_for_images_is_refused(small: Path) -> None:
    with pytest.raises(ValueError, match="takes images, which have no mask; leave it out"):
        tc.export.load(small).run(torch.zeros(2, 1, 7, 9), torch.ones(2, 7, dtype=torch.bool))


def test_commands_say_what_they_need(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(FOLDER / "recipe.json", unfinished)
    for words, message in {
        ("export", str(unfinished)): "has no checkpoint yet; go on with `torchcaps train --resume",
        ("demo", str(unfinished)): "has no checkpoint yet; go on with `torchcaps train --resume",
        ("export", str(small)): "is exported already",
        ("export", "nowhere"): "no such run folder or model file",
        ("export", "shipped", "--format", "torch", "--decoder", "x"): "--decoder writes an ONNX file",
        ("export", str(tmp_path / "run")): "recipe.json",
        ("explain", str(small)): "nobody can look into an ONNX file",
    }.items():
        assert main(list(words)) == 2
        assert message in capsys.readouterr().err
