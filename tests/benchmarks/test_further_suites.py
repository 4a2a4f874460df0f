"""The suites of small layers, busy machines and growth: the same results as their opponents, and honest arithmetic."""

import pytest
import torch
from torch import Tensor

from benchmarks import growth_cases, load_cases, small_cases
from tests.support import SINGLE_GRADIENT, assert_near
from torchcaps.routing import ROUTINGS


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize("task", small_cases.TASKS)
@pytest.mark.parametrize("weights", ["pairs", "shared"])
def test_plain_einsum_comes_to_the_same(name: str, task: str, weights: small_cases.Weights) -> None:
    ours, plain = small_cases.make_pair(name, 12, 2, task, weights)
    one, other = ours(), plain()
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    for found, expected in zip(one, other, strict=True):
        assert isinstance(found, Tensor)
        assert_near(found.reshape(expected.shape), expected, SINGLE_GRADIENT)


def test_exponents_are_slopes() -> None:
    sizes = [1, 2, 4, 8, 16]
    for exponent, reached in ((1.0, True), (1.3, False), (0.5, False)):
        result = growth_cases.GrowthResult("children", sizes, [0.1 * size**exponent for size in sizes])
        assert result.exponent == pytest.approx(exponent)
        assert result.reached is reached
    assert growth_cases.RANGES.keys() == set(growth_cases.AXES)


def test_a_step_of_growth_has_both_gradients() -> None:
    found = growth_cases.make_step(2, 5, 3)()
    assert isinstance(found, tuple)
    assert [part.shape for part in found] == [torch.Size([2, 5, 8]), torch.Size([5, 3, 8, 16])]


def test_a_busy_machine_may_cost_its_share() -> None:
    def result(busy: float, opponent: float) -> bool:
        return load_cases.LoadResult("x", "", "einsum", 1.0, busy, 2.0, opponent).reached

    assert result(3.9, 4.0)
    assert not result(4.1, 9.0)
    assert not result(3.0, 2.9)


def test_busy_processes_end_with_the_measurement() -> None:
    import multiprocessing

    with load_cases.busy_processes(1):
        assert len(multiprocessing.active_children()) == 1
    assert not multiprocessing.active_children()


def test_the_mean_is_geometric_and_every_case_counts() -> None:
    def result(faster: float) -> small_cases.SmallResult:
        return small_cases.SmallResult("fm", 32, 1, "training", 1, 1.0, faster)

    assert small_cases.mean([result(1.0), result(4.0)]) == pytest.approx(2.0)
    assert small_cases.reached([result(1.0), result(4.0)])
    assert not small_cases.reached([result(0.9), result(40.0)])
    assert small_cases.lines([result(0.9)])[0].endswith("missed")
