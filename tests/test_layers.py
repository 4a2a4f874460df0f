"""Layers: capsules in, capsules out, with any routing."""

from contextlib import nullcontext

import pytest
import torch

import torchcaps as tc
from tests.support import assert_near, numbers
from torchcaps.kernels import without_kernels
from torchcaps.layers.class_capsules import grid_coordinates
from torchcaps.routing import DynamicRouting, HeinsenRouting, InvertedAttention, concurrent_routing

every_routing = pytest.mark.parametrize("routing", tc.routing.ROUTINGS)


@every_routing
def test_a_stack_of_layers_learns(routing: str) -> None:
    torch.manual_seed(0)
    first = tc.ConvCapsules(2, (2, 2), 3, (2, 2), 2, 1, routing)
    second = tc.ClassCapsules(3, (2, 2), 4, (2, 2), routing)
    third = tc.DenseCapsules(4, (2, 2), 2, (2, 2), routing)
    capsules = tc.Capsules(torch.randn(2, 4, 4, 2, 4), torch.randn(2, 4, 4, 2))
    result = third(second(first(capsules)))
    assert result.pose.shape == (2, 2, 4)
    loss = result.pose.square().sum() + (0.0 if result.score is None else result.score.sum())
    loss.backward()
    for layer in (first, second, third):
        assert layer.weight.grad is not None
        assert bool(layer.weight.grad.isfinite().all())
        assert bool((layer.weight.grad != 0).any())


@every_routing
def test_any_number_of_children_and_as_many_parents(routing: str) -> None:
    torch.manual_seed(0)
    layer = tc.DenseCapsules(None, (2, 3), None, (2, 3), routing)
    for count in (1, 2, 5):
        pose = torch.randn(2, count, 6)
        assert layer(tc.Capsules(pose, torch.zeros(2, count))).pose.shape == (2, count, 6)
        assert layer(tc.Capsules(pose, torch.zeros(2, count)), num_parents=3).pose.shape == (2, 3, 6)
    with pytest.raises(ValueError, match="at least one parent; got num_parents=0"):
        layer(tc.Capsules(torch.randn(2, 5, 6)), num_parents=0)


def test_parents_of_a_variable_layer_differ_by_the_learned_direction() -> None:
    layer = tc.DenseCapsules(None, 3, None, 3, "heinsen").double()
    pose = numbers(1, 4, 3)
    votes = layer.votes(tc.Capsules(pose)).tensor()
    assert layer.offset is not None
    expected = (pose @ layer.weight[0, 0])[:, :, None] + torch.linspace(-1, 1, 4, dtype=torch.float64)[
        :, None
    ] * layer.offset[0]
    assert_near(votes, expected)


def test_num_parents_goes_through_the_vote_norm() -> None:
    layer = tc.DenseCapsules(None, 3, None, 3, "fm", vote_norm="component").double()
    capsules = tc.Capsules(numbers(2, 4, 3))
    assert_near(layer(capsules, num_parents=4).pose, layer(capsules).pose)


def test_coordinate_addition() -> None:
    layer = tc.ClassCapsules(2, (4, 4), 3, (4, 4), "em", coordinate_scale=0.1).double()
    plain = tc.ClassCapsules(2, (4, 4), 3, (4, 4), "em", coordinates=False).double()
    plain.load_state_dict(layer.state_dict())
    capsules = tc.Capsules(numbers(1, 3, 5, 2, 16), numbers(1, 3, 5, 2))
    moved = layer.votes(capsules).tensor() - plain.votes(capsules).tensor()
    moved = moved.reshape(3, 5, 2, 3, 4, 4)
    for row in range(3):
        for column in range(5):
            expected = torch.zeros(4, 4, dtype=torch.float64)
            expected[0, 3], expected[1, 3] = 0.1 * (row + 0.5), 0.1 * (column + 0.5)
            assert_near(moved[row, column], expected.expand(2, 3, 4, 4), 1e-8)


def test_coordinates_of_vector_poses_are_their_last_two_numbers() -> None:
    places = grid_coordinates(2, 2, 1, 5, like=torch.zeros(1))
    assert places[3, 0].tolist() == [0.0, 0.0, 0.0, 1.5, 1.5]


def test_class_capsules_share_weights_over_positions() -> None:
    layer = tc.ClassCapsules(2, 3, 4, 5, "dynamic", coordinates=False).double()
    pose = numbers(1, 2, 2, 2, 3)
    votes = layer.votes(tc.Capsules(pose)).tensor().reshape(2, 2, 2, 4, 5)
    assert_near(votes, torch.einsum("yxtd,tjdh->yxtjh", pose[0], layer.weight))


@pytest.mark.parametrize("axes", ["component", "pair"])
def test_vote_norm_normalizes(axes) -> None:
    layer = tc.DenseCapsules(3, (2, 2), 2, (2, 2), "fm", vote_norm=axes).double()
    votes = layer._normed_votes(tc.Capsules(numbers(64, 3, 4, scale=3.0))).tensor()
    over = (0, 1, 2) if axes == "component" else (0,)
    assert_near(votes.mean(over) + 1.0, torch.ones_like(votes.mean(over)), 1e-6)
    assert_near(votes.var(over, unbiased=False), torch.ones_like(votes.mean(over)), 1e-2)


def test_initial_weights_follow_the_papers() -> None:
    torch.manual_seed(0)
    weights = {
        0.1: tc.DenseCapsules(200, 8, 10, 16, "dynamic").weight,
        0.25: tc.DenseCapsules(64, (4, 4), 20, (4, 4), "heinsen").weight,
        0.3: tc.ConvCapsules(16, (4, 4), 16, (4, 4), 3, 2, "em").weight,
        0.01: tc.ClassCapsules(64, (4, 4), 20, (4, 4), "em").weight,
        (32 / (4 * 288)) ** 0.5: tc.ConvCapsules(32, (4, 4), 32, (4, 4), 3, 2, "inverted_attention").weight,
    }
    for std, weight in weights.items():
        assert_near(weight.std().detach(), torch.tensor(std), 0.03)


def test_learned_arguments_of_dynamic_routing() -> None:
    layer = tc.DenseCapsules(5, 4, 3, 6, DynamicRouting(prior=True, bias=True, orphan=True))
    assert isinstance(layer.routing, DynamicRouting)
    layer(tc.Capsules(torch.randn(2, 5, 4))).pose.square().sum().backward()
    for parameter in (layer.routing.prior, layer.routing.bias):
        assert parameter is not None
        assert parameter.grad is not None
        assert bool((parameter.grad != 0).any())


def test_shared_betas_are_one_parameter() -> None:
    apart, shared = HeinsenRouting(), HeinsenRouting(shared_betas=True)
    tc.DenseCapsules(5, 4, 3, 4, apart)
    tc.DenseCapsules(5, 4, 3, 4, shared)
    assert sum(p.numel() for p in apart.parameters()) == 2 * sum(p.numel() for p in shared.parameters()) == 30


def _attention_stack(**options) -> tuple[tc.ConvCapsules, tc.ClassCapsules, tc.Capsules]:
    torch.manual_seed(0)
    first = tc.ConvCapsules(2, (2, 2), 3, (2, 2), 2, 1, InvertedAttention(**options)).double()
    second = tc.ClassCapsules(3, (2, 2), 4, (2, 2), InvertedAttention(**options), coordinates=False).double()
    return first, second, tc.Capsules(numbers(2, 4, 4, 2, 4), numbers(2, 4, 4, 2))


def test_concurrent_routing_reads_the_iteration_before() -> None:
    first, second, primary = _attention_stack()
    low, high = concurrent_routing(primary, [first.step, second.step], num_iters=3)
    one_low = first.step(primary)
    one_high = second.step(one_low)
    two_low, two_high = first.step(primary, one_low), second.step(one_low, one_high)
    three_low, three_high = first.step(primary, two_low), second.step(two_low, two_high)
    assert_near(low.pose, three_low.pose)
    assert_near(high.pose, three_high.pose)


@pytest.mark.parametrize(("num_iters", "steps_taken"), [(1, [1, 1, 1]), (2, [1, 1, 2]), (3, [1, 2, 3]), (5, [3, 4, 5])])
def test_the_last_layer_alone_needs_fewer_steps_of_those_below(num_iters: int, steps_taken: list[int]) -> None:
    first, second, primary = _attention_stack()
    third = tc.DenseCapsules(4, (2, 2), 2, (2, 2), InvertedAttention()).double()
    layers, taken = (first, second, third), [0, 0, 0]

    def counting(number: int):
        def step(children: tc.Capsules, parents: tc.Capsules | None) -> tc.Capsules:
            taken[number] += 1
            return layers[number].step(children, parents)

        return step

    *_, whole = concurrent_routing(primary, [layer.step for layer in layers], num_iters=num_iters)
    weights = [layer.weight for layer in layers]
    expected = torch.autograd.grad(whole.pose.square().sum(), weights)
    (last,) = concurrent_routing(primary, [counting(n) for n in range(3)], num_iters=num_iters, last_only=True)
    assert taken == steps_taken
    assert_near(last.pose, whole.pose)
    for found, wanted in zip(torch.autograd.grad(last.pose.square().sum(), weights), expected, strict=True):
        assert_near(found, wanted)


def test_sequential_routing_finishes_a_layer_first() -> None:
    first, second, primary = _attention_stack(num_iters=3)
    low, high = concurrent_routing(primary, [first.step, second.step], num_iters=3, mode="sequential")
    assert_near(low.pose, first(primary).pose)
    assert_near(high.pose, second(first(primary)).pose)


def test_ablations_of_inverted_attention() -> None:
    for options in ({"normalize": False}, {"activations": True}, {"scale": 1.0}):
        first, second, primary = _attention_stack(**options)
        low, high = concurrent_routing(primary, [first.step, second.step], num_iters=2)
        assert (high.score is not None) == ("activations" in options)
        assert bool(high.pose.isfinite().all())
        loss = high.pose.square().sum() if high.score is None else high.score.sum()
        loss.backward()
        assert first.weight.grad is not None
        assert bool((first.weight.grad != 0).any())
        assert low.pose.shape == (2, 3, 3, 3, 4)


def test_only_stepwise_routings_go_step_by_step() -> None:
    with pytest.raises(ValueError, match="EMRouting does not go step by step; InvertedAttention does"):
        tc.DenseCapsules(5, 4, 3, 4, "em").step(tc.Capsules(torch.zeros(1, 5, 4)))


@every_routing
@pytest.mark.parametrize("competition", ["image", "field"])
def test_children_in_the_padding_take_no_part(routing: str, competition) -> None:
    """What would stand in their place does not matter: votes made of a bias alone, or a batch norm's."""
    torch.manual_seed(0)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "competition": competition, "bias": True}
    layer = tc.ConvCapsules(2, (2, 2), 3, (2, 2), (2, 3), routing=routing, **options).double()
    assert layer.bias is not None
    torch.nn.init.normal_(layer.bias)
    capsules = tc.Capsules(numbers(2, 3, 4, 2, 4))
    result = layer(capsules)
    assert result.pose.shape == (2, 2, 4, 3, 4)
    trace = tc.routing.Trace()
    layer(capsules, trace=trace)
    there = layer.votes(capsules).there
    assert there is not None
    assert not bool(there.all())
    for iteration in trace.iterations:
        assert (iteration.coupling[there] > 0).all()
        assert (iteration.coupling[~there] == 0).all()
    # As certain scores: children without scores are all there, but for those of the padding.
    certain = tc.Capsules(capsules.pose, torch.full((2, 3, 4, 2), torch.inf, dtype=torch.float64))
    assert_near(layer(certain).pose, result.pose)


def test_vote_norm_leaves_the_padding_out() -> None:
    layer = tc.ConvCapsules(2, (2, 2), 3, (2, 2), 3, padding=1, routing="fm", vote_norm="component").double()
    capsules = tc.Capsules(numbers(16, 4, 5, 2, 4, scale=3.0))
    votes = layer._normed_votes(capsules)
    assert votes.there is not None
    chosen = votes.tensor()[votes.there]
    assert_near(chosen.mean((0, 1)) + 1.0, torch.ones(4, dtype=torch.float64), 1e-6)
    assert_near(chosen.var((0, 1), unbiased=False), torch.ones(4, dtype=torch.float64), 1e-2)


@every_routing
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda routing: tc.DenseCapsules(6, 8, 3, 4, routing), (0, 6, 8)),
        (lambda routing: tc.DenseCapsules(6, (2, 2), 3, (2, 3), routing), (2, 0, 6, 4)),
        (lambda routing: tc.DenseCapsules(None, (4, 4), 3, (4, 4), routing), (0, 6, 16)),
        (lambda routing: tc.DenseCapsules(None, 16, 3, 2, routing), (0, 6, 16)),
        (lambda routing: tc.ConvCapsules(2, 8, 3, 4, 3, 1, routing, padding=1), (0, 5, 5, 2, 8)),
        (lambda routing: tc.ClassCapsules(2, (4, 4), 3, (4, 4), routing), (0, 3, 3, 2, 16)),
    ],
    ids=["dense", "matrix", "closed", "shared", "convolution", "class"],
)
def test_a_batch_of_no_examples(make, shape: tuple[int, ...], compiled: bool, routing: str) -> None:
    layer = make(routing)
    with nullcontext() if compiled else without_kernels():
        pose, score = torch.zeros(shape, requires_grad=True), torch.zeros(shape[:-1], requires_grad=True)
        result = layer(tc.Capsules(pose, score))
        one = layer(tc.Capsules(torch.randn(1, *shape[shape.index(0) + 1 :]), None))
        assert result.pose.shape == (*shape[: shape.index(0) + 1], *one.pose.shape[1:])
        assert (result.score is None) == (one.score is None)
        torch.stack([part.sum() for part in result if part is not None]).sum().backward()
    assert pose.grad is not None
    assert pose.grad.shape == shape
    assert layer.weight.grad is not None
    for parameter in layer.parameters():
        assert parameter.grad is None or not parameter.grad.any()


def test_vector_routing_of_no_examples() -> None:
    layer = tc.layers.VectorRouting(4, 6, 3, 5)
    found = layer(torch.zeros(0, 4, 6))
    assert found.shape == (0, 3, 5)
    found.sum().backward()
    assert not any(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())
