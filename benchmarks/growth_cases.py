"""How time and memory grow: dynamic routing of a dense layer over a 16-fold range of each of its sizes."""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.cases import OURS, Case, Work
from benchmarks.operations import DYNAMIC, count_operations
from benchmarks.runner import MEBI, describe_machine, measure_peak_memory, measure_product_rate, run_in_fresh_process
from torchcaps import routing
from torchcaps.votes import dense_votes

LOW, HIGH = 0.95, 1.1  # targets of the exponents
MEMORY = 1.25  # target: how many times the memory of 4 times the examples, beyond inputs and outputs
# From where on calls take no noticeable part of the time, and nothing of pairs is kept for the backward pass any more:
# below, there is another regime, whose fixed costs make the growth look slower than it is.
RANGES = {
    "examples": [(examples, 640, 10) for examples in (256, 512, 1024, 2048, 4096)],
    "children": [(512, children, 10) for children in (400, 800, 1600, 3200, 6400)],
    "parents": [(512, 400, parents) for parents in (10, 20, 40, 80, 160)],
}
AXES = ("examples", "children", "parents")


@dataclass(frozen=True)
class GrowthResult:
    """Times along one axis, and the exponent of the power of it that fits them best."""

    axis: str
    sizes: list[int]
    seconds: list[float]
    operations: tuple[float, ...] = ()  # multiplications and additions of the formula, of each size

    @property
    def exponent(self) -> float:
        across, up = [math.log(size) for size in self.sizes], [math.log(each) for each in self.seconds]
        middle, height = sum(across) / len(across), sum(up) / len(up)
        slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
        return slope / sum((x - middle) ** 2 for x in across)

    @property
    def reached(self) -> bool:
        return LOW <= self.exponent <= HIGH


def make_step(examples: int, children: int, parents: int) -> Work:
    """Forward and backward."""
    torch.manual_seed(0)
    pose = (torch.randn(examples, children, 8) * 0.3).requires_grad_()
    weight = (torch.randn(children, parents, 8, 16) * 0.1).requires_grad_()
    return lambda: torch.autograd.grad(
        routing.dynamic_routing(dense_votes(pose, weight)).pose.sum(), [pose, weight]
    )  # fmt: skip


def _times(sizes: list[tuple[int, int, int]], repeats: int, threads: int) -> list[float]:
    torch.set_num_threads(threads)
    works = [make_step(*size) for size in sizes]
    for work in works:
        work()
    least = [float("inf")] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            least[place] = min(least[place], time.perf_counter() - start)
    return least


def excess_memory(examples: int, threads: int) -> float:
    """Mebibytes of a step beyond its inputs and gradients."""
    case = Case("", {OURS: lambda: make_step(examples, 1152, 10)}, ())
    peak = run_in_fresh_process(measure_peak_memory, case, OURS, threads)
    return (peak - 4 * (examples * 1152 * 8 + 1152 * 10 * 8 * 16)) / MEBI


def run_growth(repeats: int = 5, threads: int = 2) -> tuple[list[GrowthResult], list[float]]:
    """All axes, and the memory of 256 and of 1,024 examples."""
    found = [
        GrowthResult(
            axis,
            [size[AXES.index(axis)] for size in sizes],
            run_in_fresh_process(_times, sizes, repeats, threads),
            tuple(count_operations(math.prod(size) * 16, 8, DYNAMIC) for size in sizes),
        )
        for axis, sizes in RANGES.items()
    ]
    return found, [excess_memory(examples, threads) for examples in (256, 1024)]


def lines(results: list[GrowthResult], memory: list[float]) -> list[str]:
    """The results, one line each."""
    found = [
        f"{each.axis}: exponent {each.exponent:.2f} ({LOW:g} to {HIGH:g})" + ("" if each.reached else "  missed")
        for each in results
    ]
    return [*found, f"memory beyond inputs and outputs: {memory[0]:.0f} MB for 256 examples, {memory[1]:.0f} for 1,024"]


def reached(results: list[GrowthResult], memory: list[float]) -> bool:
    return all(each.reached for each in results) and memory[1] <= MEMORY * memory[0]


def record(results: list[GrowthResult], memory: list[float], *, repeats: int, threads: int) -> dict[str, Any]:
    """The results and the circumstances, as JSON takes them."""
    cases = [asdict(each) | {"exponent": each.exponent, "reached": each.reached} for each in results]
    return {
        **describe_machine(),
        "repeats": repeats,
        "threads": threads,
        "product_rate": run_in_fresh_process(measure_product_rate, threads),
        "memory": memory,
        "cases": cases,
    }
