"""Small layers, where the time goes into calls and not into numbers: ours against ten lines of plain einsum.

Every routing with 32 children at batches of 1, 16 and 64, with a weight for each pair and with weights that all
children share, and dynamic routing with the 1,152 children of CapsNet at 1 and 16; inference and training; one thread
and two.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks import opponents
from benchmarks.operations import count_operations, count_passes
from benchmarks.runner import describe_machine, measure_product_rate, run_in_fresh_process
from torchcaps import routing
from torchcaps.routing import ROUTINGS
from torchcaps.votes import dense_votes, shared_votes
from torchcaps.votes.children import map_children

EACH, MEAN = 1.0, 1.3  # targets: every case, and their mean
PARENTS, CHILD_POSE, PARENT_POSE = 10, 8, 16
Weights = Literal["pairs", "shared"]
"""A weight for each pair of child and parent, or weights that all children share."""
LAYERS: list[tuple[str, int, int, Weights]] = [
    *[(name, 32, examples, "pairs") for name in ROUTINGS for examples in (1, 16, 64)],
    *[("dynamic", 1152, examples, "pairs") for examples in (1, 16)],
    *[(name, 32, examples, "shared") for name in ROUTINGS for examples in (1, 16, 64)],
]
TASKS = ("inference", "training")
Forward = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class SmallResult:
    """One layer, one task, one number of threads."""

    routing: str
    children: int
    examples: int
    task: str
    threads: int
    seconds: float
    einsum_seconds: float
    weights: Weights = "pairs"
    operations: float | None = None  # multiplications and additions of the formula

    @property
    def faster(self) -> float:
        return self.einsum_seconds / self.seconds


def make_pair(
    name: str, children: int, examples: int, task: str, weights: Weights = "pairs"
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Ours and plain einsum: the same inputs, the same results, gradients in all inputs when training."""
    torch.manual_seed(0)
    types = children if weights == "pairs" else 1
    leaves = [
        torch.randn(examples, children, CHILD_POSE) * 0.3,
        torch.randn(types, PARENTS, CHILD_POSE, PARENT_POSE) * 0.1,
    ]
    score, beta = torch.zeros(examples, children), torch.zeros(PARENTS)
    use, bias = torch.zeros(children, PARENTS), torch.zeros(())
    temperatures = routing.rising_inverse_temperature(3)
    norm = torch.nn.LayerNorm(PARENT_POSE, elementwise_affine=False)

    def votes() -> Any:
        return dense_votes(leaves[0], leaves[1]) if weights == "pairs" else shared_votes(leaves[0], leaves[1][0])

    def attend() -> tuple[Tensor, ...]:
        operator = votes()
        parents = routing.inverted_attention_step(operator, norm=norm)
        return (routing.inverted_attention_step(operator, parents, norm=norm),)

    pairs: list[tuple[str, Forward, Forward]] = [
        (
            "dynamic",
            lambda: (routing.dynamic_routing(votes()).pose,),
            lambda: (opponents.dynamic_einsum(leaves[0], leaves[1]),),
        ),
        (
            "em",
            lambda: _named(routing.em_routing(votes(), score, beta_cost=beta, beta_active=beta), "pose", "score"),
            lambda: opponents.em_einsum(leaves[0], leaves[1], score, beta, beta, temperatures),
        ),
        ("inverted_attention", attend, lambda: (opponents.inverted_attention_einsum(leaves[0], leaves[1]),)),
        (
            "fm",
            lambda: _named(routing.fm_agreement(votes()), "pose", "score"),
            lambda: opponents.fm_einsum(leaves[0], leaves[1]),
        ),
        (
            "heinsen",
            lambda: _named(
                routing.heinsen_routing(votes(), score, beta_use=use, beta_ignore=use), "score", "pose", "variance"
            ),
            lambda: opponents.heinsen_literal(score, leaves[0].unsqueeze(2), leaves[1], bias, use, use),
        ),
        (
            "self_attention",
            lambda: (routing.self_attention_routing(votes(), prior=use).pose,),
            lambda: (opponents.self_attention_einsum(leaves[0], leaves[1], use),),
        ),
        (
            "fixed_point",
            lambda: (routing.fixed_point_routing(votes()).pose,),
            lambda: (opponents.fixed_point_einsum(leaves[0], leaves[1]),),
        ),
        (
            "uniform",
            lambda: (routing.uniform_routing(votes()).pose,),
            lambda: (opponents.uniform_einsum(leaves[0], leaves[1]),),
        ),
    ]
    gates = torch.randn(types, PARENTS, CHILD_POSE) * 0.3

    def route_themselves() -> tuple[Tensor, ...]:
        logits = map_children(leaves[0], gates)  # as in SelfRouting
        return _named(routing.self_routing(votes(), score, logits=logits), "pose", "score")

    pairs += [
        ("self_routing", route_themselves, lambda: opponents.self_routing_einsum(leaves[0], leaves[1], score, gates)),
        (
            "vb",
            lambda: _named(routing.vb_routing(votes(), score, beta_use=beta, beta_active=beta), "pose", "score"),
            lambda: opponents.vb_einsum(leaves[0], leaves[1], score, beta, beta),
        ),
    ]
    [(ours, plain)] = [forwards for case, *forwards in pairs if case == name]
    if task == "training":
        leaves[:] = [leaf.requires_grad_() for leaf in leaves]
    return _task(ours, leaves, task), _task(plain, leaves, task)


def _named(found: Any, *names: str) -> tuple[Tensor, ...]:
    return tuple(getattr(found, name) for name in names)


def _task(forward: Forward, leaves: list[Tensor], task: str) -> Callable[[], object]:
    if task == "inference":
        return forward

    def step() -> object:
        return torch.autograd.grad(torch.stack([part.sin().sum() for part in forward()]).sum(), leaves)

    return step


def time_pair(one: Callable[[], object], other: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Medians of the two, in turn, over about so many seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        one()
        other()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 5:
        for work, found in zip((one, other), times, strict=True):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def count_layer_operations(
    name: str, pairs: int, pose: int, child_pose: int, columns: int, *, training: bool = True
) -> float | None:
    """Multiplications and additions of a layer, with the passes that the routing's plain einsum makes in a dense layer
    of few children; none for a routing that iterates until it converges, since that depends on the inputs.

    Args:
        name: name of the routing.
        pairs: pairs of a child and a parent, of all examples and windows.
        pose: numbers of a parent's pose.
        child_pose: numbers of a child's pose.
        columns: numbers of a child's pose that each number of a vote is a product of; fewer for matrix poses.
        training: whether there is a backward pass.
    """
    if hasattr(ROUTINGS[name](), "max_iters"):
        return None
    examples, children = 2, 64
    _, plain = make_pair(name, children, examples, "inference")
    passes, products = count_passes(plain, examples * children * PARENTS, PARENT_POSE, CHILD_POSE)
    return count_operations(pairs * pose, columns, passes + products * child_pose / pose, training=training)


def _measure(threads: int, seconds: float) -> list[SmallResult]:
    torch.set_num_threads(threads)
    found = []
    for name, children, examples, weights in LAYERS:
        for task in TASKS:
            ours, plain = time_pair(*make_pair(name, children, examples, task, weights), seconds)
            operations = count_layer_operations(
                name, examples * children * PARENTS, PARENT_POSE, CHILD_POSE, CHILD_POSE, training=task == "training"
            )
            found.append(SmallResult(name, children, examples, task, threads, ours, plain, weights, operations))
    return found


def run_small(seconds: float = 0.5) -> list[SmallResult]:
    """All layers, tasks and threads."""
    return [result for threads in (1, 2) for result in run_in_fresh_process(_measure, threads, seconds)]


def reached(results: list[SmallResult]) -> bool:
    return min(each.faster for each in results) >= EACH and mean(results) >= MEAN


def mean(results: list[SmallResult]) -> float:
    """The geometric mean of the ratios."""
    return statistics.geometric_mean(each.faster for each in results)


def lines(results: list[SmallResult]) -> list[str]:
    """The results, one line each."""
    found = [
        f"{each.routing:9} {each.weights:6} {each.children:5} children, batch {each.examples:2}, {each.task:9}, "
        f"threads {each.threads}: "
        f"{1e3 * each.seconds:7.2f} ms, einsum {1e3 * each.einsum_seconds:7.2f} ms, {each.faster:.2f}×"
        + ("" if each.faster >= EACH else "  missed")
        for each in results
    ]
    return [*found, f"mean {mean(results):.2f}× (at least {MEAN:g}×)"]


def record(results: list[SmallResult]) -> dict[str, Any]:
    """The results and the circumstances, as JSON takes them."""
    return {
        **describe_machine(),
        "mean": mean(results),
        "product_rate": {threads: run_in_fresh_process(measure_product_rate, threads) for threads in (1, 2)},
        "targets": {"each": EACH, "mean": MEAN},
        "cases": [asdict(each) | {"faster": each.faster} for each in results],
    }
