"""Counts are exact, whatever the batches; every figure follows from them by its definition."""

import json

import pytest
import torch

from tests.lab.evaluation.made import Crops, Given, Rows, labels, rows
from torchcaps.cli.evaluate import _print_pairs
from torchcaps.lab.evaluation import Evaluation, ensemble, evaluate
from torchcaps.lab.reports.sections import confusion_section
from torchcaps.lab.training import interval
from torchcaps.losses import BinaryCrossEntropyLoss, CrossEntropyLoss, MarginLoss


def several(count: int) -> torch.Tensor:
    """Rows with exactly two ones."""
    best = torch.rand(count, 4, generator=torch.Generator().manual_seed(2)).topk(2).indices
    return torch.zeros(count, 4).scatter(1, best, 1.0)


@pytest.mark.parametrize("loss", [MarginLoss(), CrossEntropyLoss()])
def test_counts_do_not_depend_on_the_batch(loss) -> None:
    loader = Rows(rows(101), labels(101))
    found = [evaluate(Given(), loader, loss, batch_size=size).to_json() for size in (7, 64, 101, 1000)]
    assert all(each == found[0] for each in found)
    assert loader.asked == list(range(101)) * 4
    assert found[0]["total"] == 101
    assert found[0]["correct"] == sum(
        int(row.argmax()) == int(label) for row, label in zip(loader.rows, loader.label, strict=True)
    )


def test_accuracy_error_and_their_intervals() -> None:
    found = evaluate(Given(), Rows(torch.eye(4), torch.tensor([0, 1, 2, 0])), CrossEntropyLoss())
    assert (found.correct, found.total, found.accuracy, found.error) == (3, 4, 0.75, 0.25)
    assert found.interval == interval(3, 4)
    assert found.error_interval == pytest.approx((1 - found.interval[1], 1 - found.interval[0]))


def test_per_class_and_confusion() -> None:
    said = torch.nn.functional.one_hot(torch.tensor([0, 1, 1, 2, 2, 2]), 4).float()
    found = evaluate(Given(), Rows(said, torch.tensor([0, 0, 1, 2, 1, 2])), MarginLoss())
    confusion = found.confusion()
    assert confusion is not None
    assert confusion.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    first, second, third, fourth = found.per_class()
    assert (first.name, first.total, first.said, first.hit) == ("a", 2, 1, 1)
    assert (second.recall, second.precision) == (0.5, 0.5)
    assert third.precision == 2 / 3
    assert (fourth.recall, fourth.precision) == (None, None)


def test_commonest_confusions() -> None:
    said = torch.nn.functional.one_hot(torch.tensor([1, 1, 1, 2, 0, 2]), 4).float()
    found = evaluate(Given(), Rows(said, torch.tensor([0, 0, 1, 1, 0, 2])), MarginLoss())
    assert found.list_confused(1) == [("a", "b", 2)]
    assert found.list_confused(12) == [("a", "b", 2), ("b", "c", 1)]
    assert evaluate(Given(), Rows(several(3), several(3)), BinaryCrossEntropyLoss()).list_confused(3) == []


def test_many_classes_are_shown_as_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"class {number}" for number in range(30))
    found = Evaluation(names, torch.eye(30)[[3, 4, 4]], torch.tensor([3, 3, 4]), CrossEntropyLoss())
    assert "<td>class 3</td><td>class 4</td>" in confusion_section(found).replace("\n", "")
    _print_pairs(found)
    assert capsys.readouterr().out.split() == ["class", "taken", "for", "times", "class", "3", "class", "4", "1"]


def test_several_labels_need_an_exact_match() -> None:
    truth = several(40)
    logits = truth * 6 - 3
    logits[0] = -logits[0]  # all wrong
    logits[1, truth[1].argmax()] = -9.0  # one of two missed: not a match
    found = evaluate(Given(), Rows(logits, truth), BinaryCrossEntropyLoss(), batch_size=7)
    assert found.multi_label
    assert (found.correct, found.total) == (38, 40)
    assert found.confusion() is None
    for number, counts in enumerate(found.per_class()):
        decided = logits[:, number] > 0
        assert counts.total == int(truth[:, number].sum())
        assert counts.said == int(decided.sum())
        assert counts.hit == int((decided & (truth[:, number] > 0)).sum())
    best_two = evaluate(Given(), Rows(logits, truth), MarginLoss(decision="two_most_active"))
    assert best_two.correct == 38


def test_calibration_by_hand() -> None:
    # Four answers at a confidence of 0.8, three of them right; one at 0.6, right.
    logits = torch.tensor([[0.8, 0.2]] * 4 + [[0.6, 0.4]]).log()
    found = Evaluation(("a", "b"), logits, torch.tensor([0, 0, 0, 1, 0]), CrossEntropyLoss())
    assert found.calibration_error() == pytest.approx((4 * abs(0.8 - 0.75) + 1 * abs(0.6 - 1.0)) / 5, abs=1e-6)
    assert found.brier() == pytest.approx((3 * 2 * 0.2**2 + 2 * 0.8**2 + 2 * 0.4**2) / 5, abs=1e-6)
    assert found.loss == pytest.approx(-(3 * torch.tensor(0.8).log() + torch.tensor([0.2, 0.6]).log().sum()) / 5)


def test_everything_goes_into_json() -> None:
    text = json.dumps(evaluate(Given(), Rows(rows(9), labels(9)), MarginLoss()).to_json())
    assert json.loads(text)["per_class"][0]["name"] == "a"


def test_crops_and_ensembles_average_alike() -> None:
    label = labels(23)
    crops = [Rows(rows(23, seed=seed), label) for seed in range(3)]
    together = evaluate(Given(), Crops(crops), MarginLoss(), batch_size=5)
    alone = [evaluate(Given(), crop, MarginLoss()) for crop in crops]
    torch.testing.assert_close(ensemble(alone).logits, together.logits)
    mean = torch.stack([crop.rows.sigmoid() for crop in crops]).mean(0)
    assert ensemble(alone).correct == int((mean.argmax(-1) == label).sum())
    assert ensemble(alone[:1]).correct == alone[0].correct


def test_an_ensemble_of_other_examples_is_refused() -> None:
    one = evaluate(Given(), Rows(rows(9), labels(9)), MarginLoss())
    other = evaluate(Given(), Rows(rows(9), labels(9, seed=5)), MarginLoss())
    with pytest.raises(ValueError, match="the same examples"):
        ensemble([one, other])
    with pytest.raises(ValueError, match="one kind"):
        ensemble([one, evaluate(Given(), Rows(rows(9), labels(9)), CrossEntropyLoss())])


def test_classes_that_do_not_fit_are_refused() -> None:
    loader = Rows(rows(9), labels(9))
    loader.classes = ("a", "b")
    with pytest.raises(ValueError, match="4 classes apart; the data has 2"):
        evaluate(Given(), loader, MarginLoss())


def test_the_model_is_left_as_it_was() -> None:
    model = Given().train()
    evaluate(model, Rows(rows(3), labels(3)), MarginLoss())
    assert model.training


def test_chosen_examples_only() -> None:
    loader = Rows(rows(20), labels(20))
    assert evaluate(Given(), loader, MarginLoss(), indices=torch.tensor([3, 5, 19])).total == 3
    assert loader.asked == [3, 5, 19]
