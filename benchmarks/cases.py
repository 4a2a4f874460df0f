"""The benchmark's cases: a piece of work, the ways to do it, and how far ahead ours should be.

Each contender is made by a function that sets up its inputs and returns the work, a function without arguments. The
work is a forward and a backward pass unless the case says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import opponents
from benchmarks.operations import DYNAMIC, FM, GAUSSIAN, count_operations
from torchcaps import routing
from torchcaps.votes import convolutional_votes, dense_votes, shared_votes

Work = Callable[[], object]
OURS = "torchcaps"


@dataclass(frozen=True)
class Target:
    """How many times faster and leaner than an opponent ours should be."""

    opponent: str
    faster: float
    leaner: float | None = None


@dataclass(frozen=True)
class Case:
    """One piece of work and those who do it; the first contender is ours."""

    title: str
    contenders: dict[str, Callable[[], Work]]
    targets: tuple[Target, ...]
    memory_limit: float | None = None  # the most that ours may take above the idle process, in bytes
    operations: float | Callable[[], float | None] | None = None  # multiplications and additions of the formula
    inputs: float | None = None  # numbers that have to be read, and whose gradients have to be written


def _leaf(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape) * scale).requires_grad_()


def _step(inputs: list[Tensor], forward: Callable[[], tuple[Tensor, ...]]) -> Work:
    """Forward and backward, with gradients in all inputs."""

    def work() -> object:
        results = forward()
        return torch.autograd.grad(sum((result.sum() for result in results), torch.zeros(())), inputs)

    return work


def _shared_heinsen(batch: int, children: int, pose: tuple[int, int], parents: int, columns: int) -> Case:
    rows, width = pose

    def inputs() -> list[Tensor]:
        torch.manual_seed(0)
        return [
            _leaf(batch, children),
            _leaf(batch, children, rows, width),
            _leaf(1, parents, width, columns, scale=1.0 / width),
            _leaf(1, parents, rows, columns, scale=0.1),
            _leaf(1, parents, scale=0.01),
            _leaf(1, parents, scale=0.01),
        ]

    def literal() -> Work:
        tensors = score, pose, weight, bias, beta_use, beta_ignore = inputs()
        return _step(tensors, lambda: opponents.heinsen_literal(score, pose, weight, bias, beta_use, beta_ignore))

    def ours() -> Work:
        tensors = inputs()
        score, pose, weight, bias, beta_use, beta_ignore = tensors

        def forward() -> tuple[Tensor, ...]:
            votes = shared_votes(pose.flatten(-2), weight[0], bias[0], rows=rows)
            found = routing.heinsen_routing(votes, score, beta_use=beta_use, beta_ignore=beta_ignore)
            return tuple(part for part in found if part is not None)

        return _step(tensors, forward)

    return Case("", {OURS: ours, "literal formula": literal}, ())


def _dynamic(batch: int, num_iters: int) -> tuple[Callable[[], list[Tensor]], Callable[[], Work]]:
    def inputs() -> list[Tensor]:
        torch.manual_seed(0)
        return [_leaf(batch, 1152, 8, scale=0.3), _leaf(1152, 10, 8, 16, scale=0.1)]

    def ours() -> Work:
        pose, weight = tensors = inputs()
        return _step(tensors, lambda: (routing.dynamic_routing(dense_votes(pose, weight), num_iters=num_iters).pose,))

    return inputs, ours


def heinsen_smallnorb() -> Case:
    case = _shared_heinsen(20, 5184, (4, 4), 64, 4)
    title = "Heinsen, smallNORB layer 1: 20 × 5,184 children of 4×4 → 64 of 4×4, 3 iterations"
    return Case(
        title,
        case.contenders,
        (Target("literal formula", 100.0, 20.0),),
        None,
        count_operations(20 * 5184 * 64 * 16, 4, GAUSSIAN),
        20 * 5184 * 17 + 64 * 32,
    )


def heinsen_sst() -> Case:
    case = _shared_heinsen(20, 925, (1, 64), 64, 2)
    title = "Heinsen, SST layer 1: 20 × 925 children of 1×64 → 64 of 1×2, 3 iterations"
    return Case(
        title,
        case.contenders,
        (Target("literal formula", 3.0, 3.0),),
        None,
        count_operations(20 * 925 * 64 * 2, 64, GAUSSIAN),
        20 * 925 * 65 + 64 * 130,
    )


def dynamic_mnist() -> Case:
    inputs, ours = _dynamic(128, 3)

    def against(function: Callable[..., Tensor]) -> Callable[[], Work]:
        def make() -> Work:
            tensors = inputs()
            return _step(tensors, lambda: (function(*tensors),))

        return make

    return Case(
        "dynamic, MNIST digit capsules: 128 × 1,152 children of 8 → 10 of 16, 3 iterations",
        {
            OURS: ours,
            "broadcast": against(opponents.dynamic_broadcast),
            "einsum": against(opponents.dynamic_einsum),
        },
        (Target("broadcast", 20.0, 15.0), Target("einsum", 8.0)),
        operations=count_operations(128 * 1152 * 160, 8, DYNAMIC),
        inputs=128 * 1152 * 8 + 1152 * 1280,
    )


def _em_conv(batch: int, grid: int, types: int, parents: int) -> Case:
    temperatures = routing.rising_inverse_temperature(3)

    def inputs() -> list[Tensor]:
        torch.manual_seed(0)
        return [
            _leaf(batch, grid, grid, types, 16),
            _leaf(batch, grid, grid, types),
            _leaf(3, 3, types, parents, 4, 4, scale=0.3),
            _leaf(parents),
            _leaf(parents),
        ]

    def ours() -> Work:
        pose, score, weight, beta_cost, beta_active = tensors = inputs()

        def forward() -> tuple[Tensor, ...]:
            votes = convolutional_votes(pose, weight, stride=2, rows=4)
            found = routing.em_routing(votes, score, beta_cost=beta_cost, beta_active=beta_active)
            assert found.score is not None
            return found.pose, found.score

        return _step(tensors, forward)

    def literal() -> Work:
        pose, score, weight, beta_cost, beta_active = tensors = inputs()

        def forward() -> tuple[Tensor, ...]:
            votes = opponents.unfolded_votes(pose, weight, stride=2)
            scores = opponents.unfolded_scores(score, 3, 2)
            return opponents.em_literal(votes, scores, beta_cost, beta_active, temperatures, 5e-4)

        return _step(tensors, forward)

    title = f"EM convolution: {batch} × {types} types on {grid}×{grid} → {parents} types, 3×3 stride 2, 3 iterations"
    side = (grid - 3) // 2 + 1
    operations = count_operations(batch * side * side * 9 * types * parents * 16, 4, GAUSSIAN)
    targets = (Target("unfolded votes", 12.0, 15.0),)
    numbers = batch * grid * grid * types * 17 + 9 * types * parents * 16
    return Case(title, {OURS: ours, "unfolded votes": literal}, targets, operations=operations, inputs=numbers)


def em_small() -> Case:
    return _em_conv(32, 16, 8, 16)


def em_large() -> Case:
    return _em_conv(8, 14, 32, 32)


def inverted_attention() -> Case:
    def inputs() -> list[Tensor]:
        torch.manual_seed(0)
        return [_leaf(32, 16, 16, 32, 16), _leaf(3, 3, 32, 32, 4, 4, scale=0.17), _leaf(32, 7, 7, 32, 16)]

    def ours() -> Work:
        pose, weight, parents = tensors = inputs()

        def forward() -> tuple[Tensor, ...]:
            votes = convolutional_votes(pose, weight, stride=2, rows=4, competition="field")
            return (routing.inverted_attention_step(votes, parents),)

        return _step(tensors, forward)

    def literal() -> Work:
        pose, weight, parents = tensors = inputs()

        def forward() -> tuple[Tensor, ...]:
            votes = opponents.unfolded_votes(pose, weight, stride=2)
            return (opponents.inverted_attention_literal(votes, parents.flatten(0, 2)),)

        return _step(tensors, forward)

    return Case(
        "inverted attention convolution, one step: 32 × 32 types on 16×16 → 32 types, 3×3 stride 2",
        {OURS: ours, "unfolded votes": literal},
        (Target("unfolded votes", 12.0, 15.0),),
        operations=count_operations(32 * 49 * 288 * 32 * 16, 4, 2),
        inputs=32 * 256 * 32 * 16 + 9 * 32 * 32 * 16 + 32 * 49 * 32 * 16,
    )


def fm() -> Case:
    inputs, _ = _dynamic(128, 1)

    def ours() -> Work:
        pose, weight = tensors = inputs()

        def forward() -> tuple[Tensor, ...]:
            found = routing.fm_agreement(dense_votes(pose, weight))
            assert found.score is not None
            return found.pose, found.score

        return _step(tensors, forward)

    def one_pass() -> Work:
        tensors = inputs()
        return _step(tensors, lambda: (opponents.one_pass(*tensors),))

    return Case(
        "FM agreement: 128 × 1,152 children of 8 → 10 of 16, against one pass over the votes",
        {OURS: ours, "one pass": one_pass},
        (Target("one pass", 1.0),),
        operations=count_operations(128 * 1152 * 160, 8, FM),
        inputs=128 * 1152 * 8 + 1152 * 1280,
    )


ROUTING: dict[str, Callable[[], Case]] = {
    "heinsen-smallnorb": heinsen_smallnorb,
    "heinsen-sst": heinsen_sst,
    "dynamic-mnist": dynamic_mnist,
    "em-conv-small": em_small,
    "em-conv-large": em_large,
    "inverted-attention-conv": inverted_attention,
    "fm": fm,
}
