"""Estimators in files: with pickle by the user, with safetensors by us."""

import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import torchcaps as tc
from tests.sklearn.test_estimators import TINY, X, Y
from torchcaps.files import encode_tensors
from torchcaps.models.saving import read
from torchcaps.sklearn import CapsuleClassifier, CapsuleEncoder

NAMES = np.array(["zero", "one", "two"])


@pytest.fixture(scope="module")
def fitted() -> CapsuleClassifier:
    return CapsuleClassifier(**TINY, transforms={"pad": 1}, image_shape=(8, 8)).fit(X, NAMES[Y])


def test_pickled_and_dumped_it_predicts_the_same_bits(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_a_file_of_ours_gives_the_same_bits(fitted, tmp_path):
    fitted.save(tmp_path / "digits.safetensors")
    again = CapsuleClassifier.load(tmp_path / "digits.safetensors")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.get_params() == {**fitted.get_params(), "model_options": {"caps": 2, "widths": [8, 8]}}
    assert again.n_features_in_ == 64
    assert np.array_equal(again.fit(X, NAMES[Y]).predict_proba(X), fitted.predict_proba(X)), "and trains as before"


def test_the_same_file_is_a_model_of_the_library(fitted, tmp_path):
    fitted.save(tmp_path / "digits.safetensors")
    model = tc.load(tmp_path / "digits.safetensors")
    assert model.class_names == ("one", "two", "zero")
    assert model.preprocess is not None
    with torch.no_grad():
        logits = model(model.preprocess(torch.from_numpy(X / 16).float()[:, None])).logits
    assert np.allclose(logits.softmax(-1), fitted.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("labels", [Y, Y.astype(float), Y > 0, NAMES.astype(object)[Y]])
def test_labels_of_every_kind_come_back(labels, tmp_path):
    encoder = CapsuleEncoder(**{**TINY, "epochs": 1}).fit(X, labels)
    encoder.save(tmp_path / "encoder")
    again = CapsuleEncoder.load(tmp_path / "encoder")
    assert again.classes_.tolist() == np.unique(labels).tolist()
    assert np.array_equal(again.transform(X), encoder.transform(X))


def write_changed(path: Path, changes: dict[str, Any]) -> None:
    """The same file with another description, as a stranger may write it."""
    found = read(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    described = {**json.loads(found.extra["sklearn"]), **changes}
    path.write_bytes(encode_tensors(found.state, {**header, "sklearn": json.dumps(described)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimator": "CapsuleEncoder"}, "it holds a 'CapsuleEncoder'; load it with that class"),
        ({"parameters": {"nonsense": 1}}, "parameters is an object; expected those of CapsuleClassifier"),
        ({"parameters": []}, r"parameters is \[\]"),
        ({"classes": ["a", "b"]}, "other classes or images than its model"),
        ({"classes": ["a", "a", "b"]}, "each once"),
        ({"classes": [["a"], "b", "c"]}, "no number and no string"),
        ({"classes": 3}, "classes are 3"),
        ({"dtype": "O"}, "expected numbers or strings"),
        ({"dtype": "nonsense"}, "nonsense"),
        ({"dtype": "<U999999999"}, "not understood"),
        ({"dtype": "int64"}, "describes no CapsuleClassifier"),
        ({"image_shape": [8, 8]}, "expected rows, columns and channels"),
        ({"image_shape": [4, 16, 1]}, "other classes or images than its model"),
        ({"pixel_range": [1.0, 0.0]}, "expected black, then white"),
        ({"pixel_range": ["0", 1.0]}, "expected two numbers"),
        ({"steps": -1}, "steps is -1"),
    ],
)
def test_a_forged_file_is_refused(fitted, tmp_path, changes, message):
    path = tmp_path / "forged"
    fitted.save(path)
    write_changed(path, changes)
    with pytest.raises(ValueError, match=message):
        CapsuleClassifier.load(path)


def test_files_that_are_no_estimators(fitted, tmp_path):
    path = tmp_path / "model"
    tc.models.save(fitted.model_, path)
    with pytest.raises(ValueError, match="is the file of a model, not of an estimator"):
        CapsuleClassifier.load(path)
    fitted.save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        CapsuleClassifier.load(path)
    strange = pickle.loads(pickle.dumps(fitted)).set_params(model_options={"caps": object()})
    with pytest.raises(ValueError, match="model_options=an object cannot be written down: it is a object"):
        strange.save(path)


def test_names_of_the_format_are_taken(fitted, tmp_path):
    with pytest.raises(ValueError, match="extra has 'sha256', which is a name of the format"):
        tc.models.save(fitted.model_, tmp_path / "model", extra={"sha256": "0"})
