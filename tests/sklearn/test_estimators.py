"""Capsule networks as scikit-learn estimators: arrays, labels, selection of models, workers, early stopping."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import torchcaps as tc
from torchcaps.routing import ROUTINGS
from torchcaps.sklearn import CapsuleClassifier, CapsuleEncoder

TINY: dict[str, Any] = {
    "model_options": {"widths": (8, 8), "caps": 2},
    "num_iters": 2,
    "epochs": 3,
    "batch_size": 20,
    "learning_rate": 0.02,
    "random_state": 0,
}


def load_images(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Digits 0, 1 and 2 of 8×8 pixels, from 0 to 16."""
    found: Any = load_digits(n_class=3)
    return found.images[:count], found.target[:count]


X, Y = load_images()
LARGE = np.kron(X, np.ones((1, 4, 4)))


def copy(estimator: CapsuleClassifier) -> Any:
    return clone(estimator)


@pytest.fixture(scope="module")
def fitted() -> CapsuleClassifier:
    return CapsuleClassifier(**TINY).fit(X, Y)


def test_it_learns_and_says_what_it_saw():
    images, labels = load_images(240)
    classifier = CapsuleClassifier(**{**TINY, "epochs": 6}).fit(images[:160], labels[:160])
    assert classifier.score(images[160:], labels[160:]) > 0.9
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.n_features_in_ == 64
    assert classifier.image_shape_ == (8, 8, 1)
    assert classifier.pixel_range_ == (0.0, 16.0)
    assert [line["kind"] for line in classifier.history_] == ["train"] * classifier.n_steps_


def test_images_channels_and_flat_rows_are_the_same(fitted):
    found = fitted.predict_proba(X)
    assert np.allclose(found.sum(1), 1)
    for shape in ((60, 64), (60, 8, 8, 1)):
        again = CapsuleClassifier(**TINY).fit(X.reshape(shape), Y)
        assert np.array_equal(again.predict_proba(X), found)
        assert np.array_equal(again.predict_proba(X.reshape(60, 64).tolist()), found)


def test_colors_and_sides_are_kept():
    images = np.random.default_rng(0).integers(0, 256, (24, 4, 6, 3), dtype=np.uint8)
    labels = np.arange(24) % 2
    images[labels == 1, :, :3, 2] = 255  # the left half of the last channel tells
    classifier = CapsuleClassifier(**{**TINY, "epochs": 24}).fit(images, labels)
    assert classifier.pixel_range_ == (0.0, 255.0)
    assert classifier.model_.image == (3, 4, 6)
    assert classifier.score(images, labels) == 1
    flat = CapsuleClassifier(**{**TINY, "epochs": 24, "image_shape": (4, 6, 3)}).fit(images.reshape(24, -1), labels)
    assert np.array_equal(flat.predict_proba(images), classifier.predict_proba(images))


def test_labels_may_be_strings_or_any_numbers():
    for names in (np.array(["pear", "apple", "fig"]), np.array([7, -1, 300]), np.array(["a", "b", "c"], dtype=object)):
        classifier = CapsuleClassifier(**TINY).fit(X, names[Y])
        assert classifier.classes_.tolist() == sorted(names.tolist())
        assert set(classifier.predict(X)) <= set(names.tolist())
        assert classifier.predict_proba(X).argmax(1).tolist() == [
            classifier.classes_.tolist().index(label) for label in classifier.predict(X)
        ]
        assert classifier.model_.class_names == tuple(map(str, classifier.classes_))


@pytest.mark.parametrize("routing", list(ROUTINGS))
def test_every_routing_by_name(routing):
    classifier = CapsuleClassifier(**{**TINY, "epochs": 1}, routing=routing).fit(X, Y)
    assert classifier.predict_proba(X).shape == (60, 3)
    assert np.allclose(classifier.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize(
    ("loss", "model"), [("margin", "comparison"), (None, "sabour2017_mnist"), (None, "cnn_tsai2020_cifar10")]
)
def test_other_losses_and_models(loss, model):
    options = {**TINY, "epochs": 1, "model": model, "loss": loss}
    if model != "comparison":
        small = dict(tc.models.entry(model).smallest)
        options["model_options"] = {**small, **({"kernel_size": 3} if model == "sabour2017_mnist" else {})}
    if model == "cnn_tsai2020_cifar10":
        options["num_iters"] = None
    images = LARGE if model.startswith("cnn") else X
    classifier = CapsuleClassifier(**options).fit(images, Y)
    assert np.allclose(classifier.predict_proba(images).sum(1), 1)
    assert getattr(classifier.model_, "decoder", None) is None, "nothing would train it"


def test_a_decoder_is_trained_when_asked_for():
    small = {**tc.models.entry("sabour2017_mnist").smallest, "kernel_size": 3, "decoder_widths": (8, 8)}
    options = {**TINY, "epochs": 1, "model": "sabour2017_mnist", "model_options": small, "reconstruction": 0.1}
    classifier = CapsuleClassifier(**options).fit(X, Y)
    assert classifier.model_.untrained == ()
    assert "reconstruction" in classifier.history_[-1]


def test_a_seed_gives_the_same_weights_and_none_gives_others(fitted):
    before = torch.random.get_rng_state()
    again = copy(fitted).fit(X, Y)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    other = copy(fitted).set_params(random_state=1).fit(X, Y)
    assert not np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
    numpy = [copy(fitted).set_params(random_state=np.random.RandomState(3)).fit(X, Y) for _ in range(2)]
    assert np.array_equal(numpy[0].predict_proba(X), numpy[1].predict_proba(X))


def test_early_stopping_keeps_the_best_of_the_validation_examples():
    options = {**TINY, "early_stopping": True, "validation_fraction": 0.3, "n_iter_no_change": 2, "epochs": 30}
    classifier = CapsuleClassifier(**options).fit(X, Y)
    found = [line["accuracy"] for line in classifier.history_ if line["kind"] == "val"]
    best = found.index(max(found))
    assert len(found) == min(30, best + 3) < 30, "two epochs after the best one it stopped"
    assert classifier.n_steps_ == 3 * len(found), "42 of 60 images are trained on, in three batches"


def test_partial_fit_goes_on():
    classifier = CapsuleClassifier(**TINY)
    losses = []
    for _ in range(6):
        classifier.partial_fit(X, Y, classes=[2, 1, 0])
        losses.append(classifier.history_[-1]["loss"])
    assert losses[-1] < losses[0] / 2, losses
    again = pickle.loads(pickle.dumps(classifier)).partial_fit(X[:20], Y[:20])
    classifier.partial_fit(X[:20], Y[:20])
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X)), "the optimizer travels too"
    with pytest.raises(ValueError, match=r"y has the class 3, which is none of classes, \[0, 1, 2\]"):
        classifier.partial_fit(X, Y + 3)
    with pytest.raises(ValueError, match=r"classes are \[0, 1\] now, and were \[0, 1, 2\]"):
        classifier.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        CapsuleClassifier(**TINY).partial_fit(X, Y)


def test_partial_fit_after_fit_starts_from_its_weights(fitted):
    still = copy(fitted).fit(X, Y).set_params(learning_rate=1e-12).partial_fit(X, Y)
    weights = dict(still.model_.named_parameters())
    for name, tensor in fitted.model_.named_parameters():
        assert torch.allclose(weights[name], tensor, atol=1e-9), name


def count_threads(estimator: Any, X: Any, y: Any) -> int:
    return torch.get_num_threads()


def test_workers_of_a_grid_search_share_the_cores():
    grid = {"routing": ["dynamic", "fm"], "epochs": [1]}
    search = GridSearchCV(CapsuleClassifier(**TINY), grid, cv=2, refit=False)
    alone = search.set_params(scoring="accuracy").fit(X, Y).cv_results_
    scorers = {"accuracy": "accuracy", "threads": count_threads}
    found = search.set_params(scoring=scorers, n_jobs=2).fit(X, Y).cv_results_
    assert np.array_equal(found["mean_test_accuracy"], alone["mean_test_score"])
    most = max(1, (joblib.cpu_count() or 1) // 2)
    assert found["mean_test_threads"].max() <= most, "two workers with all threads each would fight"


def test_fits_in_threads_take_turns(fitted):
    with ThreadPoolExecutor(3) as pool:
        several = list(pool.map(lambda _: copy(fitted).fit(X, Y), range(3)))
    for one in several:
        assert np.array_equal(one.predict_proba(X), fitted.predict_proba(X))


def test_threads_are_given_back(fitted):
    before = torch.get_num_threads()
    copy(fitted).set_params(threads=2).fit(X, Y).predict(X)
    assert torch.get_num_threads() == before


def test_pipelines_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), CapsuleClassifier(**TINY))
    assert cross_val_score(pipeline, X.reshape(60, -1), Y, cv=2).shape == (2,)
    encoder = CapsuleEncoder(**{**TINY, "epochs": 12})
    assert make_pipeline(encoder, LogisticRegression()).fit(X, Y).score(X, Y) > 0.9


def test_the_encoder_gives_class_poses(fitted):
    encoder = CapsuleEncoder(**TINY).fit(X, Y)
    poses = encoder.transform(X)
    with torch.no_grad():
        capsules = encoder.model_(torch.from_numpy(X / 16).float()[:, None]).capsules
    assert poses.shape == (60, 3 * 16)
    assert np.allclose(poses, capsules.pose.flatten(1).numpy(), atol=1e-6)
    assert list(encoder.get_feature_names_out())[:17:16] == ["0_0", "1_0"]
    with pytest.raises(ValueError, match="the model 'cnn_tsai2020_cifar10' has no capsules, so there are no poses"):
        CapsuleEncoder("cnn_tsai2020_cifar10", epochs=1).fit(LARGE, Y)


def test_progress_is_shown_when_asked_for(capsys):
    CapsuleClassifier(**{**TINY, "epochs": 1}).fit(X, Y)
    assert capsys.readouterr().out == ""
    CapsuleClassifier(**{**TINY, "epochs": 1}, verbose=True).fit(X, Y)
    assert "comparison: 60 images, 3 steps" in capsys.readouterr().out
