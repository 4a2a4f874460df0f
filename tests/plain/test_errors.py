"""Bad input gets a clear error that quotes what came; extreme input gets a defined result."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchcaps as tc
from tests.routing.cases import MAIN, RoutingCase
from torchcaps import routing
from torchcaps.votes import convolutional_votes, dense_votes, shared_votes, tensor_votes

VOTES = torch.randn(2, 5, 3, 4)
BETA = torch.zeros(3)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("at least one iteration; got num_iters=0", lambda: routing.dynamic_routing(VOTES, num_iters=0)),
        ("at least one iteration; got num_iters=-1", lambda: routing.DynamicRouting(num_iters=-1)),
        (
            r"prior of shape \(4, 3\); expected \(5, 3\)",
            lambda: routing.dynamic_routing(VOTES, prior=torch.zeros(4, 3)),
        ),
        (r"votes need the axes .* got shape \(5, 3\)", lambda: tensor_votes(torch.zeros(5, 3))),
        ("have no child", lambda: tensor_votes(torch.zeros(2, 0, 3, 4))),
        ("have no parent", lambda: tensor_votes(torch.zeros(2, 5, 0, 4))),
        ("floating-point numbers; got torch.int64", lambda: tensor_votes(torch.zeros(2, 5, 3, 4, dtype=torch.int64))),
        (
            r"score of shape \(2, 6\) does not fit the children; expected \(2, 5\)",
            lambda: routing.em_routing(VOTES, torch.zeros(2, 6), beta_cost=BETA, beta_active=BETA),
        ),
        (
            "2 inverse temperatures for 3 iterations",
            lambda: routing.em_routing(VOTES, None, beta_cost=BETA, beta_active=BETA, inverse_temperature=(0.1, 0.2)),
        ),
        (
            r"parents of shape \(2, 3, 5\); the votes are for \(2, 3, 4\)",
            lambda: routing.inverted_attention_step(VOTES, torch.zeros(2, 3, 5)),
        ),
        ("no routing 'em2'; there are 'dynamic', 'em'", lambda: tc.DenseCapsules(5, 8, 3, 16, routing="em2")),
        (
            "poses of 15 numbers do not fit the weight, which is for 4 × 4 matrices, 16 numbers",
            lambda: dense_votes(torch.zeros(2, 5, 15), torch.zeros(5, 3, 4, 4), rows=4),
        ),
        (
            "5 children are no whole number of groups of the weight's 2 types",
            lambda: dense_votes(torch.zeros(2, 5, 8), torch.zeros(2, 3, 8, 4)),
        ),
        (
            r"bias of shape \(3, 4\); expected \(3, 1, 4\)",
            lambda: shared_votes(torch.zeros(2, 5, 8), torch.zeros(3, 8, 4), torch.zeros(3, 4)),
        ),
        ("the axes .j, d, h.; got shape", lambda: shared_votes(torch.zeros(2, 5, 8), torch.zeros(1, 3, 8, 4))),
        ("no method 'fast'", lambda: shared_votes(torch.zeros(2, 5, 8), torch.zeros(3, 8, 4), method="fast")),  # pyright: ignore
        (
            "a grid of 2 × 5 is smaller than the 3 × 3 kernel",
            lambda: convolutional_votes(torch.zeros(1, 2, 5, 4, 8), torch.zeros(3, 3, 4, 3, 8, 4)),
        ),
        (
            "for 4 types of children; .* has 6",
            lambda: convolutional_votes(torch.zeros(1, 5, 5, 6, 8), torch.zeros(3, 3, 4, 3, 8, 4)),
        ),
        (
            r"votes keep the rows of a pose: children of \(4, 4\) cannot vote for parents of 16",
            lambda: tc.DenseCapsules(5, (4, 4), 3, 16),
        ),
        ("at least one of its parents; got 0", lambda: tc.DenseCapsules(5, 8, 0, 16)),
        ("in_caps=None; got in_caps=5, out_caps=None", lambda: tc.DenseCapsules(5, 8, None, 16)),
        (
            "takes 5 children; got poses of shape",
            lambda: tc.DenseCapsules(5, 8, 3, 16)(tc.Capsules(torch.zeros(2, 6, 8))),
        ),
        (
            "has 3 parents; num_parents=2",
            lambda: tc.DenseCapsules(5, 8, 3, 16)(tc.Capsules(torch.zeros(2, 5, 8)), num_parents=2),
        ),
        ("kernel_size and stride are at least 1; got 3 and 0", lambda: tc.ConvCapsules(2, 8, 3, 8, 3, 0)),
        ("takes a map .* of capsules", lambda: tc.ClassCapsules(2, 8, 3, 8)(tc.Capsules(torch.zeros(2, 4, 8)))),
        ("axes .*row, column, n, d", lambda: tc.flatten_grid(tc.Capsules(torch.zeros(4, 8)))),
        ("at least one row and one column; got 0", lambda: tc.DenseCapsules(5, 0, 3, 16)),
        ("no sizes yet", lambda: routing.EMRouting()(VOTES)),
        (
            "at least one layer; got none",
            lambda: routing.concurrent_routing(tc.Capsules(torch.zeros(1, 2, 4)), [], num_iters=1),
        ),
    ],
)
def test_errors_quote_what_came(message: str, call) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_routing_belongs_to_one_layer() -> None:
    shared = routing.EMRouting()
    tc.DenseCapsules(5, 8, 3, 16, routing=shared)
    with pytest.raises(ValueError, match="belongs to another layer already"):
        tc.DenseCapsules(5, 8, 3, 16, routing=shared)


sizes = st.integers(1, 5)
magnitudes = st.sampled_from([0.0, 1e-30, 1e-12, 1e-4, 1.0, 1e3, 1e6, 1e12])


@pytest.mark.parametrize("case", MAIN, ids=lambda case: case.name)
@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 3), sizes, sizes, sizes),
    size=magnitudes,
    single=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_and_magnitude_gives_numbers(
    case: RoutingCase, shape: tuple[int, int, int, int], size: float, single: bool, seed: int
) -> None:
    batch, i, j, p = shape
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float32 if single else torch.float64
    votes = (size * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    tensors = [tensor.to(dtype) for tensor in case.tensors((batch,), i, j, p)]
    results = [result for result in case.run(votes, *tensors) if result is not None]
    assert results[0].shape == (batch, j, p)
    # Squares of 1e12 leave single precision: such votes may overflow, but then visibly.
    if not (single and size > 1e6):
        assert all(bool(result.isfinite().all()) for result in results)
        (grad,) = torch.autograd.grad(sum((r.sum() for r in results), results[0].new_zeros(())), votes)
        assert bool(grad.isfinite().all())
