"""Threads give way while the machine is busy, and only then."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from torchcaps.kernels import waiting
from torchcaps.routing import dynamic_routing
from torchcaps.votes import tensor_votes
from torchcaps.votes.paths import Path, force_path

SOME_OPENMP = waiting.find_openmp()
needs_openmp = pytest.mark.skipif(SOME_OPENMP is None, reason="PyTorch has another OpenMP library here")


class _Machine:
    """A machine whose clock, queues and idle teams are set by hand."""

    def __init__(self, *, knows: bool = True) -> None:
        self.time, self.waited, self.knows, self.teams = 100.0, 5.0, knows, 0
        self.waiting = waiting.Waiting(lambda: self.waited if self.knows else None, lambda: self.time, self.start)

    def start(self) -> "_Machine":
        self.teams += 1
        return self

    def end(self) -> None:
        self.teams -= 1

    def pass_time(self, seconds: float, queued: float) -> int:
        self.time, self.waited = self.time + seconds, self.waited + queued
        self.waiting.look()
        return self.teams


def test_gives_way_while_threads_queue():
    machine = _Machine()
    teams = [machine.pass_time(0.5, queued) for queued in (0.0, 0.01, 0.3, 0.5, 0.08, 0.01, 0.0)]
    assert teams == [0, 0, 1, 1, 1, 0, 0]


def test_a_child_of_a_process_has_no_team():
    machine = _Machine()
    assert [machine.pass_time(0.5, 0.5) for _ in range(2)] == [0, 1]
    machine.waiting.begin()
    assert not machine.waiting.gives_way
    assert [machine.pass_time(0.5, 0.5) for _ in range(2)] == [1, 2]  # the parent's, and one of its own


def test_looks_four_times_a_second_at_most():
    machine = _Machine()
    assert machine.pass_time(0.5, 0.0) == 0
    assert machine.pass_time(0.1, 0.1) == 0  # too soon
    assert machine.pass_time(0.2, 0.2) == 1


def test_does_nothing_where_queues_are_unknown():
    machine = _Machine(knows=False)
    assert machine.pass_time(1.0, 1.0) == machine.pass_time(1.0, 1.0) == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not tell how threads queue")
def test_reads_how_long_threads_have_queued():
    first = waiting.read_delay()
    second = waiting.read_delay()
    assert first is not None
    assert second is not None
    assert 0 <= first <= second


@needs_openmp
def test_an_idle_team_comes_and_goes():
    script = """
import os, time, torch
from torchcaps.kernels import waiting
from torchcaps.routing import dynamic_routing
from torchcaps.votes import tensor_votes
from torchcaps.votes.paths import Path, force_path
count = lambda: len(os.listdir("/proc/self/task"))
product = lambda: torch.rand(300, 300, generator=torch.Generator().manual_seed(0)).exp().sum(0)
before, threads = product(), count()
team = waiting.IdleTeam(waiting.find_openmp())
more = count() - threads
assert more >= 2 and more + threads > len(os.sched_getaffinity(0)), (more, threads)
assert torch.equal(product(), before)
team.end()
for _ in range(200):
    if count() == threads: break
    time.sleep(0.01)
assert count() == threads, (count(), threads)
assert torch.equal(product(), before)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@needs_openmp
@pytest.mark.parametrize(("variable", "looks"), [("", True), ("OMP_WAIT_POLICY", False), ("GOMP_SPINCOUNT", False)])
def test_leaves_it_to_who_has_decided(variable: str, looks: bool, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    assert (waiting._start_looking() is not None) == looks


@pytest.mark.parametrize(("path", "looks"), [(Path.BLOCKS, True), (Path.PLAIN, False)])
def test_large_layers_look(path: Path, looks: bool, monkeypatch: pytest.MonkeyPatch):
    seen: list[bool] = []
    monkeypatch.setattr(waiting, "_waiting", SimpleNamespace(look=lambda: seen.append(True)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with force_path(path):
        dynamic_routing(tensor_votes(torch.rand(2, 3, 4, 5)))
    assert bool(seen) == looks
