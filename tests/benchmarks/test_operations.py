"""The counts of multiplications and additions: those of plain code are those of the formulas, counted by hand."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import cases, layer_cases, opponents, small_cases, text_cases
from benchmarks.operations import ATTENTION, DYNAMIC, FM, GAUSSIAN, count_operations, count_passes
from torchcaps import routing
from torchcaps.routing import ROUTINGS

EXAMPLES, CHILDREN, CHILD_POSE, PARENTS, POSE = 2, 64, 8, 10, 16
PAIRS = EXAMPLES * CHILDREN * PARENTS
SIZES = PAIRS, POSE, CHILD_POSE, CHILD_POSE
PASSES = {
    "dynamic": DYNAMIC,
    "em": 11.0,  # its plain einsum takes the squares of the variances for the two distances
    "fm": FM,
    "heinsen": GAUSSIAN,
    "inverted_attention": ATTENTION,
    "self_attention": 2.5,  # a sum, an agreement and a mix
    "self_routing": 1.0,  # a mix
    "uniform": 0.0,  # the sum over the children is part of the product
    "vb": GAUSSIAN,
}


@pytest.mark.parametrize("name", PASSES)
def test_plain_code_makes_the_passes_of_the_formula(name: str) -> None:
    _, plain = small_cases.make_pair(name, CHILDREN, EXAMPLES, "inference")
    logits = 1.0 if name == "self_routing" else 0.0
    assert count_passes(plain, PAIRS, POSE, CHILD_POSE) == (PASSES[name], logits)


def test_em_formula_by_formula_makes_as_many_passes_as_other_gaussians() -> None:
    pose, weight = torch.randn(EXAMPLES, CHILDREN, CHILD_POSE), torch.randn(CHILDREN, PARENTS, CHILD_POSE, POSE)
    beta, score = torch.zeros(PARENTS), torch.zeros(EXAMPLES, CHILDREN)

    def plain() -> object:
        votes = torch.einsum("bid,ijdh->bijh", pose, weight)
        return opponents.em_literal(votes, score, beta, beta, routing.rising_inverse_temperature(3), 5e-4)

    assert count_passes(plain, PAIRS, POSE, CHILD_POSE) == (GAUSSIAN, 0.0)


@pytest.mark.parametrize("name", ["dynamic", "inverted_attention", "self_attention", "self_routing", "uniform"])
def test_a_training_step_takes_about_three_times_as_many(name: str) -> None:
    """Of the routings that are products, by PyTorch's own counter: even couplings and plain sums have no gradient."""
    _, plain = small_cases.make_pair(name, CHILDREN, EXAMPLES, "training")
    with FlopCounterMode(display=False) as counter:
        plain()
    assert counter.get_total_flops() == pytest.approx(small_cases.count_layer_operations(name, *SIZES), rel=0.12)


def test_layers_have_as_many_iterations_as_are_counted() -> None:
    assert ROUTINGS.keys() - PASSES.keys() == {"fixed_point"}
    iterations = {name: ROUTINGS[name]().num_iters for name in PASSES if ROUTINGS[name].iterates}
    assert iterations == {"dynamic": 3, "em": 3, "heinsen": 3, "inverted_attention": 2, "vb": 3}


def find_operations(case: cases.Case) -> float | None:
    return case.operations() if callable(case.operations) else case.operations


def test_every_case_has_its_count() -> None:
    for name, make in layer_cases.list_layers().items():
        assert (find_operations(make()) is None) is name.startswith("fixed_point")
    dense, conv = layer_cases.make_dense_case("dynamic"), layer_cases.make_conv_case("dynamic", (2, 7, 2, 3, 2))
    assert find_operations(dense) == count_operations(128 * 1152 * 160, 8, 5)
    assert find_operations(conv) == count_operations(2 * 9 * 9 * 2 * 3 * 4, 2, 5)
    itself = layer_cases.make_conv_case("self_routing", (2, 7, 2, 3, 2))
    assert find_operations(itself) == count_operations(2 * 9 * 9 * 2 * 3 * 4, 2, 2)  # logits of all four numbers
    assert find_operations(text_cases.text_routing()) == 2 * 64 * 280 * 64 * 2 * (64 + 13)
    assert small_cases.count_layer_operations("fm", *SIZES, training=False) == 2 * PAIRS * POSE * (8 + 3)
