"""A backward pass leaves nothing behind: what the tape holds and what holds the tape must not keep each other alive."""

import gc

import pytest
import torch

from torchcaps import routing
from torchcaps.capsules import Capsules
from torchcaps.layers import DenseCapsules
from torchcaps.votes.tape import TapedVotes


@pytest.mark.parametrize("name", routing.ROUTINGS)
def test_no_tape_outlives_its_backward_pass(name: str) -> None:
    layer = DenseCapsules(7, 3, 4, 5, routing=name)
    gc.collect()
    before = sum(type(thing) is TapedVotes for thing in gc.get_objects())
    for _ in range(3):
        children = Capsules(torch.randn(2, 7, 3, requires_grad=True), torch.randn(2, 7, requires_grad=True))
        layer(children).pose.square().sum().backward()
        del children
    gc.collect()
    assert sum(type(thing) is TapedVotes for thing in gc.get_objects()) == before
