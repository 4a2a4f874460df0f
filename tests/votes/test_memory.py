"""What a routing leaves behind: nothing of the graph, and buffers that do not grow."""

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.routing.cases import CASES, RoutingCase
from tests.support import numbers
from torchcaps.kernels import available
from torchcaps.kernels import workspace as workspaces
from torchcaps.kernels.workspace import Workspace, borrow_workspace
from torchcaps.votes import convolutional_votes, dense_votes, limits, release_workspaces
from torchcaps.votes.native import Tape
from torchcaps.votes.paths import Path, force_path
from torchcaps.votes.tape import TapedVotes

ONE_PRODUCT = ("attention-first", "uniform", "uniform-children")  # no votes are built
IN_BLOCKS = [case for case in CASES if case.options.get("num_iters") != 1 and case.name not in ONE_PRODUCT]


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
    with force_path(Path.BLOCKS):
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


@pytest.mark.skipif(not available(), reason="the kernels are not compiled")
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("case", IN_BLOCKS, ids=lambda case: case.name)
def test_nothing_of_the_graph_stays_of_native_votes(
    case: RoutingCase, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref] = []
    original = Tape.__init__

    def watching(self: Tape, *arguments: object) -> None:
        original(self, *arguments)  # pyright: ignore[reportArgumentType]
        made.append(weakref.ref(self))

    monkeypatch.setattr(Tape, "__init__", watching)
    if not kept:
        monkeypatch.setattr(limits, "MOST_NATIVE_PAIRS_KEPT", 0)
    gc.disable()
    try:
        pose, weight = numbers(3, 7, 4).requires_grad_(), numbers(7, 3, 4, 4).requires_grad_()
        with force_path(Path.NATIVE):
            found = case.run(dense_votes(pose, weight), *case.tensors((3,), 7, 3, 4))[0]
        assert found is not None
        found.square().sum().backward()
        del found
        assert made
        assert [tape() for tape in made] == [None] * len(made)
    finally:
        gc.enable()


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
    with borrow_workspace() as outer, borrow_workspace() as inner:
        assert inner is not outer


def mix_convolution() -> None:
    pose, weight = numbers(2, 6, 6, 2, 16), numbers(3, 3, 2, 3, 4, 4)
    with force_path(Path.BLOCKS):
        convolutional_votes(pose, weight, stride=1, rows=4).mix(torch.ones(2, 4, 4, 18, 3, dtype=torch.float64))


def test_a_call_leaves_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.kernels.workspace.MOST_KEPT", 1000)
    mix_convolution()
    with borrow_workspace() as workspace:
        assert workspace.nbytes <= 1000


def kept_by(threads: int) -> int:
    """The bytes that are left when so many threads have borrowed a workspace at the same time, and rest."""
    release_workspaces()
    together = threading.Barrier(threads)

    def work() -> None:
        with borrow_workspace() as workspace:
            together.wait()  # all have one
            workspace.give(torch.empty(1000))
        together.wait()  # all have put it back, and none has ended

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work) for _ in range(threads)]:
            future.result()
    return workspaces._pool.nbytes


def test_resting_threads_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept_by(8) == 8 * 4000
    monkeypatch.setattr("torchcaps.kernels.workspace.MOST_KEPT", 12_000)
    assert kept_by(8) == 12_000


def test_memory_is_released() -> None:
    mix_convolution()
    assert workspaces._pool.nbytes > 0
    release_workspaces()
    assert workspaces._pool.nbytes == 0
    mix_convolution()  # and taken anew
    assert workspaces._pool.nbytes > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_does_not_wait_for_threads_it_does_not_have() -> None:
    with workspaces._pool.lock:  # as another thread may hold it
        child = os.fork()
        if child == 0:
            with borrow_workspace():
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_training_after_inference() -> None:
    pose, weight = numbers(3, 7, 4), numbers(7, 3, 4, 4)
    with torch.inference_mode():
        dense_votes(pose, weight).mix(torch.ones(3, 7, 3, dtype=torch.float64))
    mixed = dense_votes(pose.requires_grad_(), weight).mix(torch.ones(3, 7, 3, dtype=torch.float64))
    mixed.sum().backward()
    assert pose.grad is not None
