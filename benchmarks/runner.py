"""Runs benchmark cases: times as medians of interleaved repeats, memory as the peak of a fresh process.

All contenders of a case are timed in one process, one after the other in every round, so that whatever else the
machine does falls on all alike. What counts are the ratios.
"""

import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.cases import OURS, Case
from torchcaps import kernels
from torchcaps.files import write_json

MEBI = 1 << 20


@dataclass(frozen=True)
class Measurement:
    """One contender of one case."""

    seconds: float  # median
    fastest: float
    mebibytes: float  # peak above the idle process


@dataclass(frozen=True)
class Comparison:
    """Ours against one opponent: how many times faster and leaner, and the target."""

    opponent: str
    faster: float
    leaner: float
    faster_target: float
    leaner_target: float | None

    @property
    def reached(self) -> bool:
        return self.faster >= self.faster_target and (self.leaner_target is None or self.leaner >= self.leaner_target)


@dataclass(frozen=True)
class CaseResult:
    """The result of one case."""

    name: str
    title: str
    measurements: dict[str, Measurement]
    comparisons: tuple[Comparison, ...]
    limit: float | None  # mebibytes
    operations: float | None = None
    inputs: float | None = None

    @property
    def reached(self) -> bool:
        within = self.limit is None or self.measurements[OURS].mebibytes <= self.limit
        return within and all(comparison.reached for comparison in self.comparisons)


def run_case(name: str, case: Case, *, repeats: int, threads: int) -> CaseResult:
    times = run_in_fresh_process(_time_contenders, case, repeats, threads)
    peaks = {who: run_in_fresh_process(measure_peak_memory, case, who, threads) for who in case.contenders}
    measured = {
        who: Measurement(statistics.median(seconds), min(seconds), peaks[who] / MEBI) for who, seconds in times.items()
    }
    ours = measured[OURS]
    comparisons = tuple(
        Comparison(
            target.opponent,
            measured[target.opponent].seconds / ours.seconds,
            measured[target.opponent].mebibytes / max(ours.mebibytes, 1.0),
            target.faster,
            target.leaner,
        )
        for target in case.targets
    )
    limit = None if case.memory_limit is None else case.memory_limit / MEBI
    operations = run_in_fresh_process(case.operations) if callable(case.operations) else case.operations
    return CaseResult(name, case.title, measured, comparisons, limit, operations, case.inputs)


def run_in_fresh_process(function: Callable, *arguments: object):
    """The function's result, from a forked child that ends with it: nothing of one measurement stays for the next.

    The parent must not have run any tensor operation before, or its threads would be missing in the child.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        sender.send(function(*arguments))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a benchmark process ended with code {process.exitcode} and no result") from None
    process.join()
    return result


def _time_contenders(case: Case, repeats: int, threads: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    works = {who: make() for who, make in case.contenders.items()}
    times: dict[str, list[float]] = {who: [] for who in works}
    for _ in range(repeats):
        for who, work in works.items():
            work()  # untimed: an opponent that has just given back gigabytes leaves its successor a cold heap
            start = time.perf_counter()
            work()
            times[who].append(time.perf_counter() - start)
    return times


def measure_peak_memory(case: Case, who: str, threads: int) -> int:
    torch.set_num_threads(threads)
    work = case.contenders[who]()
    small = torch.randn(64, 64)
    torch.autograd.grad((small.requires_grad_() @ small).softmax(0).sum(), small)  # the libraries' own buffers
    idle = _resident()
    _forget_peak()
    work()
    return max(0, _peak() - idle)


def _resident() -> int:
    if sys.platform != "linux":
        return _peak()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _forget_peak() -> None:
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_product_rate(threads: int, size: int = 1536) -> float:
    """Multiplications and additions a second of a large matrix product in single precision."""
    torch.set_num_threads(threads)
    one, other = torch.randn(size, size), torch.randn(size, size)
    least = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(one, other)
        least = min(least, time.perf_counter() - start)
    return 2.0 * size**3 / least


def _measure_copy_rate(threads: int, size: int = 1 << 26) -> float:
    """Bytes a second, read and written, of copying a large tensor."""
    torch.set_num_threads(threads)
    one, other = torch.ones(size), torch.empty(size)
    least = float("inf")
    for _ in range(6):
        start = time.perf_counter()
        other.copy_(one)
        least = min(least, time.perf_counter() - start)
    return 2.0 * one.nbytes / least


def describe_machine() -> dict:
    """The circumstances of a measurement."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernels": kernels.available(),
        "load": round(os.getloadavg()[0], 2),
    }


def record(outcomes: list[CaseResult], *, repeats: int, threads: int) -> dict:
    """The outcomes and the circumstances, as JSON takes them."""
    return {
        "repeats": repeats,
        "threads": threads,
        **describe_machine(),
        "product_rate": run_in_fresh_process(measure_product_rate, threads),
        "copy_rate": run_in_fresh_process(_measure_copy_rate, threads),
        "cases": [asdict(outcome) for outcome in outcomes],
    }


def write(path: Path, content: Mapping) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content, indent=1)
