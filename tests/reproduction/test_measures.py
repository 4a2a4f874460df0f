"""What studies look at, and what they make of it."""

import math
from dataclasses import replace

import pytest
import torch

from reproduction.learning import PIECES, curve
from reproduction.measures import distances_of_views, looked_at
from torchcaps.lab.recipes import change, get


def test_networks_that_stopped_at_one_accuracy_are_compared_on_what_they_were_stopped_by():
    both = [get("sabour2017/affnist", "laptop"), get("sabour2017/affnist-cnn", "laptop")]
    assert looked_at(both) == ("val", "validation images of translated_mnist")


@pytest.mark.parametrize(("test", "said"), [("", "translated_mnist"), ("affine_mnist", "affine_mnist")])
def test_all_others_on_test_images(test: str, said: str):
    stopped = change(get("sabour2017/affnist", "laptop"), {"data.test": test})
    assert looked_at([stopped, replace(stopped, stop_at=None)]) == ("test", f"test images of {said}")


def test_poses_that_go_round_with_the_object():
    angle = torch.arange(8) * math.tau / 8
    circle = torch.stack([angle.cos(), angle.sin()], -1).unflatten(-1, (1, 2))
    (next_to, still), (apart, there) = distances_of_views([3 * circle, torch.ones(8, 5)])
    assert (next_to, apart) == pytest.approx((2 * math.sin(math.pi / 8), 2.0))
    assert (still, there) == (0.0, 0.0)


def test_a_curve_is_the_mean_of_each_piece_of_the_training():
    def line(epoch: float, accuracy: float, kind: str = "train") -> dict[str, object]:
        return {"kind": kind, "epoch": epoch, "accuracy": accuracy}

    found = curve([line(0.01, 0.2), line(0.02, 0.4), line(1.0, 0.9, "test"), line(2.0, 0.8)], epochs=2.0)
    assert found.shape == (PIECES,)
    assert found[0] == pytest.approx(0.3)
    assert found[-1] == pytest.approx(0.8)
    assert found[PIECES // 2] == pytest.approx(0.3 + 0.5 * (PIECES // 2) / (PIECES - 1))  # between its neighbors
