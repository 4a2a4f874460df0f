"""What studies look at."""

from dataclasses import replace

import pytest

from torchcaps.campaign.measures import looked_at
from torchcaps.recipes import changed, get


def test_networks_that_stopped_at_one_accuracy_are_compared_on_what_they_were_stopped_by():
    both = [get("sabour2017/affnist", "laptop"), get("sabour2017/affnist-cnn", "laptop")]
    assert looked_at(both) == ("held_out", "held-out images of translated_mnist")


@pytest.mark.parametrize(("test", "said"), [("", "translated_mnist"), ("affine_mnist", "affine_mnist")])
def test_all_others_on_test_images(test: str, said: str):
    stopped = changed(get("sabour2017/affnist", "laptop"), {"data.test": test})
    assert looked_at([stopped, replace(stopped, stop_at=None)]) == ("test", f"test images of {said}")
