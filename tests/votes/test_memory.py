"""What a routing leaves behind: nothing of the graph, and buffers that do not grow."""

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from tests.routing.cases import CASES, RoutingCase
from tests.support import numbers
from torchcaps.votes import convolutional_votes, dense_votes
from torchcaps.votes.tape import TapedVotes
from torchcaps.votes.workspace import Workspace, lent_workspace

IN_BLOCKS = [
    case for case in CASES if case.options.get("num_iters") != 1 and case.name != "attention-first"
]  # one iteration may be one matrix product


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref]]:
    """References to all blocks of votes that are made; the collector rests, so cycles would keep them alive."""
    made: list[weakref.ref] = []
    original = TapedVotes.__init__

    def watching(self: TapedVotes, *arguments: object) -> None:
        original(self, *arguments)  # pyright: ignore[reportArgumentType]
        made.append(weakref.ref(self))

    monkeypatch.setattr(TapedVotes, "__init__", watching)
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize("case", IN_BLOCKS, ids=lambda case: case.name)
def test_nothing_of_the_graph_stays(case: RoutingCase, alive: list[weakref.ref]) -> None:
    pose, weight = numbers(3, 7, 4).requires_grad_(), numbers(7, 3, 4, 4).requires_grad_()
    found = case.run(dense_votes(pose, weight), *case.tensors((3,), 7, 3, 4))[0]
    assert found is not None
    found.square().sum().backward()
    del found
    assert len(alive) >= 2, "the routing did not work in blocks"
    assert [block() for block in alive] == [None] * len(alive)


def test_buffers_come_back_whole() -> None:
    workspace = Workspace()
    like = torch.zeros(())
    large = workspace.take((4, 5), like)
    place = large.data_ptr()
    workspace.give(large)
    small = workspace.take((3,), like)
    assert small.data_ptr() == place
    workspace.give(small)
    assert workspace.take((20,), like).data_ptr() == place


def test_the_smallest_buffer_that_will_do() -> None:
    workspace = Workspace()
    like = torch.zeros(())
    buffers = [workspace.take((size,), like) for size in (8, 4, 16)]
    places = [buffer.data_ptr() for buffer in buffers]
    for buffer in buffers:
        workspace.give(buffer)
    assert workspace.take((3,), like).data_ptr() == places[1]
    assert workspace.take((5,), like).data_ptr() == places[0]
    assert workspace.take((3,), like.double()).data_ptr() not in places


def test_a_workspace_in_use_is_not_lent_twice() -> None:
    with lent_workspace() as outer, lent_workspace() as inner:
        assert inner is not outer


def test_a_thread_keeps_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.votes.workspace.MOST_KEPT", 1000)
    pose, weight = numbers(2, 6, 6, 2, 16), numbers(3, 3, 2, 3, 4, 4)
    convolutional_votes(pose, weight, stride=1, rows=4).mix(torch.ones(2, 4, 4, 18, 3, dtype=torch.float64))
    with lent_workspace() as workspace:
        assert sum(buffer.nbytes for buffer in workspace._free) <= 1000


def test_training_after_inference() -> None:
    pose, weight = numbers(3, 7, 4), numbers(7, 3, 4, 4)
    with torch.inference_mode():
        dense_votes(pose, weight).mix(torch.ones(3, 7, 3, dtype=torch.float64))
    mixed = dense_votes(pose.requires_grad_(), weight).mix(torch.ones(3, 7, 3, dtype=torch.float64))
    mixed.sum().backward()
    assert pose.grad is not None
