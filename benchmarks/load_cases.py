"""Beside other work: a step alone, and the same step while two other processes keep two cores busy."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.cases import OURS, ROUTING, Work
from benchmarks.runner import describe_machine, measure_product_rate, run_in_fresh_process

SLOWER = 4.0  # target: at most so many times the time alone, and still ahead of the opponent
CASES = {"dynamic-mnist": "einsum", "em-conv-small": "unfolded votes"}
BUSY = 2


@dataclass(frozen=True)
class LoadResult:
    """One case alone and beside busy processes, in seconds."""

    name: str
    title: str
    opponent: str
    alone: float
    busy: float
    opponent_alone: float
    opponent_busy: float
    operations: float | None = None  # multiplications and additions of the formula

    @property
    def slower(self) -> float:
        return self.busy / self.alone

    @property
    def ahead(self) -> float:
        return self.opponent_busy / self.busy

    @property
    def reached(self) -> bool:
        return self.slower <= SLOWER and self.ahead >= 1.0


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_processes(count: int = BUSY) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _time(make: Callable[[], Work], repeats: int, threads: int) -> float:
    torch.set_num_threads(threads)
    work = make()
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_load(repeats: int = 5, threads: int = 2) -> list[LoadResult]:
    """All cases; the parent of the processes runs no operation itself."""
    found = []
    for name, opponent in CASES.items():
        case = ROUTING[name]()
        contenders = (case.contenders[OURS], case.contenders[opponent])
        alone = [run_in_fresh_process(_time, make, repeats, threads) for make in contenders]
        with busy_processes():
            busy = [run_in_fresh_process(_time, make, repeats, threads) for make in contenders]
        assert not callable(case.operations)
        found.append(LoadResult(name, case.title, opponent, alone[0], busy[0], alone[1], busy[1], case.operations))
    return found


def lines(results: list[LoadResult]) -> list[str]:
    """The results, one line each."""
    return [
        f"{each.name}: {each.alone:.3f} s alone, {each.busy:.3f} s beside {BUSY} busy processes ({each.slower:.1f}×, "
        f"at most {SLOWER:g}×), {each.ahead:.1f}× ahead of {each.opponent}" + ("" if each.reached else "  missed")
        for each in results
    ]


def record(results: list[LoadResult], *, repeats: int, threads: int) -> dict[str, Any]:
    """The results and the circumstances, as JSON takes them."""
    derived = [asdict(each) | {"slower": each.slower, "ahead": each.ahead, "reached": each.reached} for each in results]
    return {
        **describe_machine(),
        "repeats": repeats,
        "threads": threads,
        "busy": BUSY,
        "product_rate": run_in_fresh_process(measure_product_rate, threads),
        "cases": derived,
    }
