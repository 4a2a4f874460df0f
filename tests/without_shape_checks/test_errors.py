"""Bad input gets a clear error that quotes what came; extreme input gets a defined result."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchcaps as tc
from tests.routing.cases import MAIN, RoutingCase
from torchcaps import decoders, heads, primary, routing
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
        (
            r"prior of shape \(3, 5\); expected \(5, 3\), or 1 in place of any of them",
            lambda: routing.self_attention_routing(VOTES, prior=torch.zeros(3, 5)),
        ),
        (
            r"prior of shape \(3, 5\); expected \(5, 3\), or 1 in place of any of them",
            lambda: routing.fixed_point_routing(VOTES, prior=torch.zeros(3, 5)),
        ),
        (
            r"over is 'parents' .* or 'children' .*; got over='all'",
            lambda: routing.uniform_routing(VOTES, over="all"),  # pyright: ignore
        ),
        ("this SelfAttentionRouting has no sizes yet", lambda: routing.SelfAttentionRouting()(VOTES)),
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
        ("out_caps is a whole number of at least 1; got out_caps=0", lambda: tc.DenseCapsules(5, 8, 0, 16)),
        ("in_caps=None; got in_caps=5, out_caps=None", lambda: tc.DenseCapsules(5, 8, None, 16)),
        (
            "takes 5 children; got poses of shape",
            lambda: tc.DenseCapsules(5, 8, 3, 16)(tc.Capsules(torch.zeros(2, 6, 8))),
        ),
        (
            "has 3 parents; num_parents=2",
            lambda: tc.DenseCapsules(5, 8, 3, 16)(tc.Capsules(torch.zeros(2, 5, 8)), num_parents=2),
        ),
        (
            "padding is a whole number of at least 0, .*got padding=-1",
            lambda: tc.ConvCapsules(2, 8, 3, 8, 3, padding=-1),
        ),
        (
            r"dilation is a .*number of at least 1, or \(rows, columns\).*got dilation=\(1, 2, 3\)",
            lambda: tc.ConvCapsules(2, 8, 3, 8, 3, dilation=(1, 2, 3)),  # pyright: ignore
        ),
        (
            r"some parents would see padding alone: .*padding \(3, 3\) .* 5 × 5; give less padding",
            lambda: convolutional_votes(torch.zeros(1, 5, 5, 4, 8), torch.zeros(3, 3, 4, 3, 8, 4), padding=3),
        ),
        (
            "vote_norm='pair' with padding=1.*give vote_norm='component'",
            lambda: tc.ConvCapsules(2, 8, 3, 8, 3, padding=1, vote_norm="pair"),
        ),
        ("stride is a whole number of at least 1, .*got stride=0", lambda: tc.ConvCapsules(2, 8, 3, 8, 3, 0)),
        (
            r"takes 72 children; got poses of shape \(2, 3, 3, 8, 4\), a map of as many: give it flatten_grid",
            lambda: tc.DenseCapsules(72, 4, 3, 4)(tc.Capsules(torch.zeros(2, 3, 3, 8, 4))),
        ),
        ("in_pose is a number of at least 1, or .rows, columns.*got -8", lambda: tc.DenseCapsules(5, -8, 3, 16)),
        ("out_pose is a number .*got .4, 0.", lambda: tc.DenseCapsules(5, (4, 4), 3, (4, 0))),
        ("in_pose is a number .*got .4, 4, 4.", lambda: tc.DenseCapsules(5, (4, 4, 4), 3, 16)),  # pyright: ignore
        ("takes a map .* of capsules", lambda: tc.ClassCapsules(2, 8, 3, 8)(tc.Capsules(torch.zeros(2, 4, 8)))),
        ("axes .*row, column, n, d", lambda: tc.flatten_grid(tc.Capsules(torch.zeros(4, 8)))),
        ("in_pose is a number of at least 1, .*got 0", lambda: tc.DenseCapsules(5, 0, 3, 16)),
        ("no sizes yet; put it in a layer, or give sizes=VoteShape", lambda: routing.EMRouting()(VOTES)),
        ("initial weights is positive; got initial_std=0.0", lambda: routing.EMRouting(initial_std=0.0)),
        ("named, or given as its class; got 3", lambda: tc.DenseCapsules(5, 8, 3, 16, routing=3)),  # pyright: ignore
        ("Linear.*expected a subclass of torchcaps.routing.Routing", lambda: routing.create(torch.nn.Linear)),  # pyright: ignore
        (
            "at least one layer; got none",
            lambda: routing.concurrent_routing(tc.Capsules(torch.zeros(1, 2, 4)), [], num_iters=1),
        ),
    ],
)
def test_errors_quote_what_came(message: str, call) -> None:
    with pytest.raises(ValueError, match=message):
        call()


SIZED: dict[Callable[..., object], dict[str, int]] = {
    tc.DenseCapsules: {"in_caps": 5, "in_pose": 4, "out_caps": 3, "out_pose": 4},
    tc.ConvCapsules: {"in_caps": 5, "in_pose": 4, "out_caps": 3, "out_pose": 4, "kernel_size": 3, "stride": 1},
    tc.ClassCapsules: {"in_caps": 5, "in_pose": 4, "out_caps": 3, "out_pose": 4},
    primary.SquashedPrimaryCapsules: {"in_channels": 3, "out_caps": 2, "out_pose": 4, "kernel_size": 3, "stride": 1},
    primary.MatrixPrimaryCapsules: {"in_channels": 3, "out_caps": 2, "out_pose": 4},
    primary.NormalizedScorePrimaryCapsules: {"in_channels": 3, "out_caps": 2, "out_pose": 4},
    primary.LayerNormPrimaryCapsules: {"in_channels": 3, "out_caps": 2, "out_pose": 4, "kernel_size": 3, "stride": 1},
    primary.NormalizedPrimaryCapsules: {"in_channels": 3, "out_caps": 2, "out_pose": 4, "kernel_size": 3, "stride": 1},
    heads.LinearHead: {"in_pose": 4},
}


@pytest.mark.parametrize("size", [0, -3, 2.5])
@pytest.mark.parametrize(
    ("make", "argument"),
    [(make, argument) for make, sizes in SIZED.items() for argument in sizes],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_sizes_are_named(make: Callable[..., object], argument: str, size: float) -> None:
    make(**SIZED[make])
    with pytest.raises(ValueError, match=f"{argument} is a .*number of at least 1.*{size}"):
        make(**(SIZED[make] | {argument: size}))


@pytest.mark.parametrize(
    "take",
    [
        tc.DenseCapsules(5, 4, 3, 4),
        tc.DenseCapsules(5, 4, 3, 4, "inverted_attention").step,
        tc.DenseCapsules(5, 4, 3, 4).votes,
        tc.ConvCapsules(5, 4, 3, 4, 3),
        tc.ClassCapsules(5, 4, 3, 4),
        tc.ClassCapsules(5, 4, 3, 4, "inverted_attention").step,
        tc.flatten_grid,
        heads.ScoreHead(),
        heads.LinearHead(4),
        decoders.FullyConnectedDecoder(5, 4, (1, 8, 8)),
    ],
    ids=lambda take: getattr(take, "__name__", type(take).__name__),  # the same in every process
)
def test_a_tensor_in_place_of_capsules(take: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"takes Capsules\(pose, score\); got a tensor of shape \(2, 5, 4\)"):
        take(torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match=r"takes Capsules\(pose, score\); got \(tensor"):
        take((torch.zeros(2, 5, 4), None))


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
