"""Counts are counts."""

import pytest
import torch
from torch import Tensor, nn

from torchcaps.data import ArrayDataset
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes import Transforms
from torchcaps.lab.training import Score, combine, interval, score
from torchcaps.losses import BinaryCrossEntropyLoss, CrossEntropyLoss, MarginLoss
from torchcaps.models import Prediction


class FirstPixel(nn.Module):
    """Says the class that the first pixel names, in tens; dropout tells whether it is in training."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def forward(self, images: Tensor) -> Prediction:
        named = (images[:, 0, 0, 0] * 25.5).round().long()
        return Prediction(self.dropout(10.0 * nn.functional.one_hot(named, 3).float()))


def loader(transforms: Transforms | None = None) -> ImageLoader:
    images = torch.zeros(7, 1, 3, 3, dtype=torch.uint8)
    images[:, 0, 0, 0] = 10 * torch.tensor([0, 1, 2, 0, 1, 2, 0])
    labels = torch.tensor([0, 1, 2, 0, 1, 1, 1])  # five of seven agree
    return ImageLoader(ArrayDataset("seven", "test", ("a", "b", "c"), images, labels), transforms or Transforms())


@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
def test_counts_do_not_depend_on_batches(batch_size):
    model = FirstPixel().train()
    found = score(model, loader(), CrossEntropyLoss(), batch_size)
    assert (found.correct, found.total) == (5, 7)
    assert found.accuracy == 5 / 7
    assert found.loss == pytest.approx((2 * 10) / 7, rel=1e-3)
    assert model.training, "left as it was"


def test_counts_of_parts_add_up():
    parts = [score(FirstPixel(), loader(), CrossEntropyLoss(), 2, indices=torch.arange(7)[rank::2]) for rank in (0, 1)]
    assert (parts[0] + parts[1]).correct == 5
    assert (parts[0] + parts[1]).total == 7


def test_crops_are_averaged_over():
    """The pixel that names the class is in two of the five crops of 2×2: the top left one, and that in the middle."""
    found = score(FirstPixel(), loader(Transforms(crop=2, crops=5)), CrossEntropyLoss())
    assert found.total == 7
    assert found.correct == 2  # three crops of five are blank and say a, which is right for two that no crop denies


def test_several_answers_become_one_by_the_loss_own_measure():
    one, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[-1.0, 3.0]])
    softmax = combine([one, other], CrossEntropyLoss())
    assert torch.allclose(softmax.softmax(-1), (one.softmax(-1) + other.softmax(-1)) / 2)
    presence = combine([one, other], MarginLoss())
    assert torch.allclose(presence.sigmoid(), (one.sigmoid() + other.sigmoid()) / 2)
    assert torch.allclose(combine([one, other], MarginLoss(on="score")), (one + other) / 2)
    certain = combine([torch.full((1, 2), 200.0)] * 2, BinaryCrossEntropyLoss())
    assert bool(certain.isfinite().all())


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)]
)
def test_wilsons_interval(correct, total, low, high):
    assert interval(correct, total) == pytest.approx((low, high), abs=1e-4)


def test_an_interval_of_nothing():
    with pytest.raises(ValueError, match="0 correct of 0"):
        interval(0, 0)
    assert Score(1.0, 0, 0).accuracy != Score(1.0, 0, 0).accuracy
