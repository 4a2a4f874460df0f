"""The counts of multiplications and additions are those of plain code, counted call by call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from benchmarks import layer_cases, opponents, small_cases, text_cases
from benchmarks.operations import PASSES, count_layer_operations, count_operations
from torchcaps import routing
from torchcaps.routing import ROUTINGS

EXAMPLES, CHILDREN, CHILD_POSE, PARENTS, POSE = 2, 64, 8, 10, 16
PAIRS = EXAMPLES * CHILDREN * PARENTS
# Operations for each number; additions are of biases, which are not counted.
ELEMENTWISE = {"aten.mul": 1, "aten.sub": 1, "aten.div": 1, "aten.pow": 1, "aten.sum": 1, "aten.linalg_vector_norm": 2}


class CountVotes(TorchDispatchMode):
    """Counts operations on tensors as large as the votes, and products of no fewer than 8 operations for each pair."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        found = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in flop_registry:
            products = flop_registry[packet](*args, out_val=found)
            self.total += products if products >= 8 * PAIRS else 0
        else:
            numbers = max((each.numel() for each in (*args, found) if isinstance(each, Tensor)), default=0)
            self.total += ELEMENTWISE.get(str(packet), 0) * numbers if numbers >= PAIRS * POSE else 0
        return found


def count(work: Callable[[], object]) -> int:
    with CountVotes() as counter:
        work()
    return counter.total


def run_em() -> object:
    """Formula by formula: the plain einsum of small layers uses deviations twice."""
    votes = torch.einsum("bid,ijdh->bijh", torch.randn(2, CHILDREN, CHILD_POSE), torch.randn(CHILDREN, 10, 8, 16))
    zeros = torch.zeros(PARENTS)
    score = torch.zeros(EXAMPLES, CHILDREN)
    return opponents.em_literal(votes, score, zeros, zeros, routing.rising_inverse_temperature(3), 5e-4)


@pytest.mark.parametrize("name", PASSES)
def test_forward_passes_are_counted_as_plain_code_makes_them(name: str) -> None:
    plain = run_em if name == "em" else small_cases.make_pair(name, CHILDREN, EXAMPLES, "inference")[1]
    assert count(plain) == count_layer_operations(name, PAIRS, POSE, CHILD_POSE, CHILD_POSE, training=False)


@pytest.mark.parametrize("name", ["dynamic", "inverted_attention", "self_attention", "self_routing", "uniform"])
def test_a_training_step_takes_about_three_times_as_many(name: str) -> None:
    """Of the routings that are products: no gradient of even couplings and of plain sums has to be computed."""
    plain = small_cases.make_pair(name, CHILDREN, EXAMPLES, "training")[1]
    with FlopCounterMode(display=False) as counter:
        plain()
    counted = count_layer_operations(name, PAIRS, POSE, CHILD_POSE, CHILD_POSE)
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.12)


def test_layers_have_as_many_iterations_as_are_counted() -> None:
    assert ROUTINGS.keys() - PASSES.keys() == {"fixed_point"}
    iterations = {name: ROUTINGS[name]().num_iters for name in PASSES if ROUTINGS[name].iterates}
    assert iterations == {"dynamic": 3, "em": 3, "heinsen": 3, "inverted_attention": 2, "vb": 3}


def test_every_case_has_its_count() -> None:
    for name, make in layer_cases.list_layers().items():
        assert (make().operations is None) is name.startswith("fixed_point")
    dense, conv = layer_cases.make_dense_case("dynamic"), layer_cases.make_conv_case("dynamic", (2, 7, 2, 3, 2))
    assert dense.operations == count_operations(128 * 1152 * 160, 8, 5)
    assert conv.operations == count_operations(2 * 9 * 9 * 2 * 3 * 4, 2, 5)
    assert text_cases.text_routing().operations == 2 * 64 * 280 * 64 * 2 * (64 + 13)
    small = small_cases.SmallResult("fm", 32, 16, "inference", 1, 1.0, 1.0)
    assert small.operations == 2 * 16 * 32 * 160 * (8 + 3)
