"""Model files: their checksum, their types, what they say of the training, and files of strangers."""

import json
import os
import stat
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from tests.models.fuzz_files import fuzz, peak, tiny_model, with_metadata
from tests.support import THOROUGH
from torchcaps.files import encode_tensors
from torchcaps.models.saving import OLD_FORMAT, read

TRAINED = tc.models.Training(tuple("abcdefghij"), (1, 28, 28), {"resize": 12}, {"kind": "cross_entropy"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tc.models.save(tiny_model(), tmp_path / "model.safetensors", TRAINED)
    return tmp_path / "model.safetensors"


def origin() -> str:
    made = tiny_model().origin
    assert made is not None
    return json.dumps({"name": made.name, "config": vars(made.config)})


def test_what_belongs_to_a_model_is_in_its_file(path: Path) -> None:
    model = tc.models.load(path)
    assert model.trained == TRAINED
    assert model.class_names == tuple("abcdefghij")
    found = read(path)
    assert found.input_shape == (1, 12, 12)
    assert found.sha256 == tc.models.checksum(model.state_dict())
    tc.models.save(model, path.with_name("again.safetensors"))
    assert path.with_name("again.safetensors").read_bytes() == path.read_bytes()


def test_every_changed_byte_of_the_tensors_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    places = range(start, len(whole), 97)
    for place in places if THOROUGH else {*places[::10], *places[-7:]}:  # one tensor is most of the file
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged: the SHA-256 of its tensors is "):
            tc.models.load(path)
        with pytest.raises(ValueError, match="is damaged"):
            tc.models.load_weights(tiny_model(), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.to(torch.int8), r"layers\.0\.weight' is of type 'I8'; expected BOOL, F16"),
        (lambda tensor: tensor.to(torch.int64), r"layers\.0\.weight int64 in place of float32"),
        (lambda tensor: tensor * float("nan"), r"1 tensors: layers\.0\.weight with numbers that are not finite"),
        (lambda tensor: tensor.double() + 1e300, r"1 tensors: layers\.0\.weight with numbers that are not finite"),
        (lambda tensor: tensor[:1], r"1 tensors of another shape: layers\.0\.weight"),
    ],
)
def test_weights_of_another_kind_are_refused(path: Path, change, message: str) -> None:
    state = tiny_model().state_dict()
    state["layers.0.weight"] = change(state["layers.0.weight"])
    path.write_bytes(with_metadata(state, {"model": origin()}))
    with pytest.raises(ValueError, match=message):
        tc.models.load(path)


def test_half_precision_is_read_as_single(path: Path) -> None:
    tc.models.save(tiny_model().half(), path)
    assert {tensor.dtype for tensor in tc.models.load(path).parameters()} == {torch.float32}


def test_files_of_the_first_format_are_read(path: Path) -> None:
    model = tiny_model()
    path.write_bytes(encode_tensors(model.state_dict(), {"format": OLD_FORMAT, "model": origin()}))
    again = tc.models.load(path)
    assert again.trained is None
    assert tc.models.checksum(again.state_dict()) == tc.models.checksum(model.state_dict())


def test_a_small_header_cannot_ask_for_much_memory(path: Path) -> None:
    tc.models.load(path)
    before = peak()
    for fields in ({"stem_channels": 2**20}, {"class_pose": 2**20}, {"image_size": 2**13}, {"primary_caps": 2**20}):
        made = json.loads(origin())
        made["config"] |= fields
        path.write_bytes(with_metadata({"a": torch.zeros(1)}, {"model": json.dumps(made)}))
        assert path.stat().st_size < 1000
        with pytest.raises(ValueError, match=r"model\.safetensors does not fit this CapsuleNet|can be built"):
            tc.models.load(path)
    assert (peak() - before) / 1024 < 50


def test_a_header_cannot_ask_for_many_modules(path: Path) -> None:
    config = {"blocks": 1000}
    path.write_bytes(with_metadata({}, {"model": json.dumps({"name": "zhao2020_cifar10", "config": config})}))
    with pytest.raises(ValueError, match="more than 1,000 tensors of weights"):
        tc.models.load(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"model": "[1]"}, r"the model of its header is \[1\]; expected its name and config"),
        ({"model": "[" * 5000}, "nested too deeply"),
        ({"model": '{"name": "sabour2017_mnist", "config": {"classes": "ten"}}'}, "classes is 'ten'; expected int"),
        ({"model": '{"name": "sabour2017_mnist", "config": {"classes": 9999999}}'}, "expected numbers up to 1,048,576"),
        ({"model": origin(), "classes": '["a"]'}, "1 names for 10 classes"),
        ({"model": origin(), "classes": '["a", "a"]'}, "some of the same name"),
        ({"model": origin(), "input_shape": "[1, 13, 12]"}, r"input_shape is \(1, 13, 12\), but its config"),
        ({"model": origin(), "format": "torchcaps-model-3"}, "has the format 'torchcaps-model-3' in its header"),
    ],
)
def test_headers_that_are_wrong_are_refused(path: Path, metadata: dict[str, str], message: str) -> None:
    path.write_bytes(with_metadata(tiny_model().state_dict(), metadata))
    with pytest.raises(ValueError, match=message) as caught:
        tc.models.load(path)
    assert str(path) in str(caught.value)


def test_files_made_up_at_random_load_or_are_refused() -> None:
    counts = fuzz(seconds=10.0, seed=1, most=150)
    assert counts["refused"] > counts["loaded"]


def test_a_model_has_the_mode_of_its_neighbors(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        tc.models.save(tiny_model(), tmp_path / "model.safetensors")
        (tmp_path / "neighbor.json").write_text("{}")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"model.safetensors": 0o640, "neighbor.json": 0o640}


def test_files_with_older_names_of_fields_are_read(tmp_path: Path) -> None:
    model = tc.models.create("sabour2017_mnist", stem_channels=4, primary_caps=2, decoder=False)
    tc.models.save(model, tmp_path / "new.safetensors")
    content = (tmp_path / "new.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b"primary_caps", b"primary_types")
    (tmp_path / "old.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    origin = tc.models.load(tmp_path / "old.safetensors").origin
    assert origin is not None
    assert origin.config.primary_caps == 2
