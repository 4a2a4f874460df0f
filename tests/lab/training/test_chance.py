"""Accuracy stands beside what a constant answer would reach, and a model that learns nothing is warned of."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

import torchcaps.lab.recipes as recipes
from torchcaps.data import ArrayDataset
from torchcaps.lab.evaluation import Evaluation
from torchcaps.lab.reports.records import parse_record
from torchcaps.lab.training import Score, train
from torchcaps.lab.training.progress import Lines
from torchcaps.lab.training.scoring import advise, describe_baseline, is_chance
from torchcaps.losses import BinaryCrossEntropyLoss, CrossEntropyLoss

POSITIVE = Score(10.0, 171, 180, (171, 9), (171, 0))  # 95 % positive, and always said to be


def test_the_largest_class_is_no_achievement():
    assert POSITIVE.accuracy == 0.95
    assert (POSITIVE.balanced_accuracy, POSITIVE.majority_share) == (0.5, 0.95)
    assert describe_baseline(POSITIVE) == "balanced accuracy 50.00 %, majority class 95.00 %"
    assert is_chance(POSITIVE)
    assert not is_chance(Score(10.0, 165, 180, (171, 9), (159, 6))), "two in three of the few are found"
    assert not is_chance(Score(10.0, 3, 3, (3, 0), (3, 0))), "one class alone is no question"
    assert not is_chance(Score(1.0, 10, 100)), "without counts nothing can be said"


def test_counts_by_class_add_up():
    both = Score(1.0, 2, 3, (1, 2), (1, 1)) + Score(1.0, 1, 2, (1, 1), (0, 1)) + Score()
    assert (both.counts, both.hits) == ((2, 3), (1, 2))
    assert both.balanced_accuracy == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_evaluations_know_the_same():
    logits = torch.tensor([[2.0, 0.0]] * 20)
    label = torch.tensor([0] * 19 + [1])
    found = Evaluation(("yes", "no"), logits, label, CrossEntropyLoss())
    assert (found.accuracy, found.balanced_accuracy, found.majority_share) == (0.95, 0.5, 0.95)
    assert found.to_json()["majority_share"] == 0.95
    several = Evaluation(("a", "b"), logits, torch.ones(20, 2), BinaryCrossEntropyLoss())
    assert (several.majority_share, several.balanced_accuracy) == (None, 0.5)


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., tuple[str, dict]]:
    def run(*changes: str) -> tuple[str, dict]:
        few = ("--data.val-size", "200", "--data.limit", "60", "--data.test-limit", "50", "--max-steps", "None")
        arguments = [*few, "--loss.reconstruction", "0", "--epochs", "2", "--batch-size", "30", *changes]
        recipe = recipes.configure("quickstart", "smoke", arguments)
        log = io.StringIO()
        done = train(recipe, tmp_path / "run", scale="smoke", console=Console(file=log, width=500))
        record = done.record()
        assert record is not None
        return log.getvalue(), record

    return run


def test_a_training_at_chance_says_what_to_try(trained: Callable[..., tuple[str, dict]]):
    said, record = trained("--model.routing", "em", "--loss.kind", "margin", "--optimizer.lr", "1e-9")
    (warning,) = [line for line in said.splitlines() if line.startswith("warning: validation accuracy")]
    assert "after epoch 2.0 is no better than always answering with the largest class" in warning
    for advice in (
        "--loss.kind cross_entropy",
        "--optimizer.lr 3.3e-10",
        "--routing.num-iters 1",
        "torchcaps data show",
    ):
        assert advice in warning
    assert "; balanced accuracy " in said.splitlines()[-2]
    assert ", majority class " in said.splitlines()[-2]
    metrics = record["metrics"]
    assert 0 <= metrics["balanced_accuracy"] <= 0.3
    assert 0.1 <= metrics["majority_share"] < 0.2
    assert parse_record(record).balanced_accuracy == metrics["balanced_accuracy"]


def test_advice_fits_the_recipe():
    recipe = recipes.get("own/images")
    model = recipes.build_model(recipes.get("own/images", "smoke"))
    said = advise(recipe, model, POSITIVE, 2.0)
    assert "--loss.kind" not in said, "its loss suits it"
    assert "num-iters" not in said, "FM agreement does not iterate"
    assert "more examples of the other classes" in said


def test_images_are_not_needed_to_count():
    from torchcaps.lab.loaders import ImageLoader
    from torchcaps.lab.training import score

    images = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    loader = ImageLoader(
        ArrayDataset("four", "test", tuple("abcdefghij"), images, torch.tensor([0, 0, 0, 1])), recipes.Transforms()
    )
    found = score(recipes.build_model(recipes.get("quickstart", "smoke")), loader, CrossEntropyLoss(), batch_size=3)
    assert found.counts == (3, 1, *[0] * 8)
    assert found.majority_share == 0.75


@pytest.mark.parametrize("unit", ["images", "texts"])
def test_the_pace_is_of_what_is_read(unit: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torchcaps.lab.training.progress.SECONDS_BETWEEN_LINES", 0.0)
    log = io.StringIO()
    lines = Lines(Console(file=log, width=300))
    lines.start(10, 0, "begin", unit)
    lines.update(1, loss=0.5, accuracy=0.5, speed=20.0, epoch=0.1)
    assert f"20 {unit}/s" in log.getvalue()
