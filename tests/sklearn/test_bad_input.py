"""What is wrong with arrays, labels and parameters, said in a line."""

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests.sklearn.test_estimators import TINY, X, Y
from torchcaps.sklearn import CapsuleClassifier


@pytest.fixture(scope="module")
def fitted() -> CapsuleClassifier:
    return CapsuleClassifier(**{**TINY, "epochs": 1}).fit(X, Y)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (X[:, :, :, None, None], Y, r"X of shape \(60, 8, 8, 1, 1\); expected images \(n, h, w\)"),
        (X[:, None].repeat(3, 1), Y, r"has its channels first; X.transpose\(0, 2, 3, 1\) puts them last"),
        (X[:, :0], Y, r"X of shape \(60, 0, 8\); expected images"),
        (np.where(X > 15, np.nan, X), Y, "Input X contains NaN"),
        (X.astype(str).astype(object) + "?", Y, "could not convert string to float"),
        (X + 1j, Y, "Complex data not supported"),
        ([[1.0, 2.0], [3.0]], [0, 1], "X is a list whose parts are not of the same shape"),
        (X, Y[:10], "inconsistent numbers of samples"),
        (X, Y + 0.5, "Unknown label type: continuous"),
        (X, np.eye(3)[Y], "y should be a 1d array, got an array of shape"),
        (X, np.zeros(60), r"y has one class only, \[0.0\]; a classifier needs at least two"),
        (X, None, "requires y to be passed"),
    ],
)
def test_arrays_and_labels_of_fit(images: Any, labels: Any, message: str):
    with pytest.raises(ValueError, match=message):
        CapsuleClassifier(**TINY).fit(images, labels)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "comparisons"}, "no model 'comparisons'; did you mean 'comparison'"),
        ({"model": "heinsen2019_sst5", "model_options": None}, "takes no images"),
        ({"routing": "dynamics"}, "no routing 'dynamics'"),
        ({"model": "cnn_tsai2020_cifar10", "model_options": {}}, "has no routing; leave it out"),
        ({"model_options": {"width": 3}}, "has a field 'width' that is not known; did you mean 'widths'"),
        ({"model_options": {"caps": "two"}}, "model_options.caps is 'two'; expected int"),
        ({"transforms": {"padding": 3}}, "transforms has a field 'padding' that is not known"),
        ({"transforms": {"pad": 10**9}}, "expected numbers up to"),
        ({"loss": "hinge"}, "loss='hinge'; expected 'margin', 'spread', 'cross_entropy'"),
        ({"reconstruction": 1.0}, "comparison has no decoder"),
        ({"epochs": 0}, "epochs=0; expected a number above 0"),
        ({"batch_size": 2.5}, "batch_size=2.5; expected a whole number above 0"),
        ({"learning_rate": "fast"}, "learning_rate='fast'; expected a number above 0"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction=1.5; expected a share"),
        ({"early_stopping": True, "n_iter_no_change": 0}, "n_iter_no_change=0; expected a whole number above 0"),
        ({"image_shape": (4, 4)}, r"image_shape=\(4, 4\) is 16 numbers an image; X has images of 8×8 pixels"),
        ({"image_shape": "8x8"}, "image_shape='8x8'; expected"),
        ({"pixel_range": (1, 0)}, r"pixel_range=\(1, 0\); expected two numbers, black and white"),
        ({"threads": 0}, "threads=0; give at least 1"),
        ({"device": "tpu9"}, "no device 'tpu9'"),
        ({"model": "sabour2017_mnist", "model_options": {}}, "do not fit the backbone"),
    ],
)
def test_parameters(parameters: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        CapsuleClassifier().set_params(**{**TINY, **parameters}).fit(X, Y)


def test_predictions(fitted):
    with pytest.raises(ValueError, match="X has images of 4×8 pixels; this model was made for 8×8 pixels"):
        fitted.predict(X[:, :4])
    with pytest.raises(ValueError, match="X has 32 features, but CapsuleClassifier is expecting 64 features"):
        fitted.predict(X.reshape(120, 32))
    with pytest.raises(ValueError, match="X holds numbers too far from the range of the images in fit, 0 to 16"):
        fitted.predict(X * 1e200)
    with pytest.raises(NotFittedError):
        CapsuleClassifier().predict(X)


def test_images_of_another_scale_and_classes_never_seen_are_warned_of(fitted):
    bytes_ = CapsuleClassifier(**{**TINY, "epochs": 1}).fit((X * 15).astype(np.uint8), Y)
    with pytest.warns(UserWarning, match="X has floats up to 1, and fit had bytes from 0 to 255"):
        bytes_.predict(X / 16)
    with pytest.warns(UserWarning, match=r"y has the class 7, which fit never saw; its examples count as wrong"):
        assert fitted.score(X[:4], [7] * 4) == 0
