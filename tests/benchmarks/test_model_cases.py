"""The opponents in the benchmark of whole models compute what ours do."""

import pytest
import torch

from benchmarks import model_cases
from tests.models.reduced import inputs, model
from torchcaps.models import CapsuleNet


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("heinsen2019_smallnorb", model_cases.literal_heinsen),
        ("tsai2020_cifar10", model_cases.literal_inverted_attention),
        ("sabour2017_mnist", model_cases.literal_dynamic),
    ],
)
def test_literal_routing_gives_the_same_logits_and_gradients(name: str, literal) -> None:
    built = model(name).double()
    assert isinstance(built, CapsuleNet)
    # A square: the literal convolution knows no other.
    batch = (
        torch.rand(2, built.image[0], 37, 37, dtype=torch.float64) if "heinsen" in name else inputs(built, 2).double()
    )
    ours, theirs = built(batch).logits, literal(built, batch)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    weights = list(built.parameters())
    for one, other in zip(
        torch.autograd.grad(ours.square().sum(), weights, allow_unused=True, materialize_grads=True),
        torch.autograd.grad(theirs.square().sum(), weights, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_operations_of_capsnet_are_those_counted_by_hand() -> None:
    """Convolutions forward and back into weights, the second into its inputs too; 1,152 × 10 votes of 16 numbers."""
    first, second = 2 * 20 * 20 * 256 * 81, 2 * 6 * 6 * 256 * 81 * 256
    votes = 6 * 1152 * 10 * 16 * (8 + model_cases.DYNAMIC)
    assert model_cases.count_model_operations("sabour2017_mnist", 2, model_cases.DYNAMIC) == 2 * (
        2 * first + 3 * second + votes
    )


def test_every_case_has_its_limit_of_memory() -> None:
    for make in model_cases.MODELS.values():
        case = make()
        assert case.memory_limit is not None
        assert next(iter(case.contenders)) == "torchcaps"
        assert case.targets[0].opponent in case.contenders
