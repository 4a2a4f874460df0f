"""What must hold for every routing, whatever its formulas."""

import pytest
import torch
from torch import Tensor

from tests.routing.cases import BY_NAME, CASES, MAIN, RoutingCase
from tests.support import assert_near, gradients, numbers
from torchcaps import routing, testing
from torchcaps.routing import Trace
from torchcaps.votes import convolutional_votes, tensor_votes

routings = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
main_routings = pytest.mark.parametrize("case", MAIN, ids=lambda case: case.name)
with_scores = pytest.mark.parametrize("case", [c for c in CASES if c.scored], ids=lambda case: case.name)
SHAPE = (2, 7, 3, 4)


def first(results: list[Tensor | None]) -> Tensor:
    assert results[0] is not None
    return results[0]


@routings
def test_the_order_of_children_does_not_matter(case: RoutingCase) -> None:
    testing.assert_child_order_irrelevant(case.run, [numbers(*SHAPE), *case.tensors((2,), 7, 3, 4)], case.axes)


@main_routings
def test_parents_keep_their_places(case: RoutingCase) -> None:
    testing.assert_parents_keep_places(case.run, [numbers(*SHAPE), *case.tensors((2,), 7, 3, 4)], case.axes)


@routings
def test_examples_do_not_see_each_other(case: RoutingCase) -> None:
    testing.assert_examples_independent(case.run, [numbers(*SHAPE), *case.tensors((2,), 7, 3, 4)], case.axes)


@with_scores
def test_an_absent_child_changes_nothing(case: RoutingCase) -> None:
    testing.assert_absent_children_ignored(case.run, [numbers(*SHAPE), *case.tensors((2,), 7, 3, 4)], case.axes)


@with_scores
@pytest.mark.parametrize("certain", [float("inf"), float("-inf")])
def test_certain_scores_have_finite_gradients(case: RoutingCase, certain: float) -> None:
    votes, (score, *betas) = numbers(*SHAPE), case.tensors((2,), 7, 3, 4)
    score = score.clone()
    score[:, ::2] = certain
    results, found = gradients(case.run, [votes, score, *betas])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)


@with_scores
def test_no_score_means_that_all_children_are_there(case: RoutingCase) -> None:
    votes, (score, *betas) = numbers(*SHAPE), case.tensors((2,), 7, 3, 4)
    named = dict(zip(case.parameters, betas, strict=True))
    sure = case.run(votes, torch.full_like(score, float("inf")), *betas)
    assert_near(case.ours(votes, None, **named, **case.options).pose, first(sure))


@with_scores
def test_all_children_absent_gives_finite_parents(case: RoutingCase) -> None:
    votes, (score, *betas) = numbers(*SHAPE), case.tensors((2,), 7, 3, 4)
    results, found = gradients(case.run, [votes, torch.full_like(score, float("-inf")), *betas])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)


@routings
def test_couplings_of_a_trace_share_each_child_out(case: RoutingCase) -> None:
    tensors = [numbers(*SHAPE), *case.tensors((2,), 7, 3, 4)]
    trace = testing.assert_couplings_sum_to_one(case.run, tensors, orphan=case.options.get("orphan", False))
    assert len(trace.iterations) == case.num_iters
    results = case.run(*tensors)
    last = trace.iterations[-1]
    assert_near(last.pose, first(results))
    if last.score is not None:
        assert results[1] is not None
        assert_near(last.score, results[1])


@routings
def test_a_trace_does_not_change_the_result(case: RoutingCase) -> None:
    votes, tensors = numbers(*SHAPE), case.tensors((2,), 7, 3, 4)
    assert_near(first(case.run(votes, *tensors, trace=Trace())), first(case.run(votes, *tensors)))


def test_couplings_on_a_grid_share_each_child_out_over_all_positions() -> None:
    pose, weight = numbers(2, 5, 5, 3, 4), numbers(3, 3, 3, 2, 2, 2)
    votes = convolutional_votes(pose, weight, stride=1, rows=2)
    trace = Trace()
    routing.dynamic_routing(votes, trace=trace)
    for iteration in trace.iterations:
        per_field = iteration.coupling.sum(-1).reshape(2, 3, 3, 3, 3, 3)  # b y x ky kx t
        total = torch.zeros(2, 5, 5, 3, dtype=torch.float64)
        for ky in range(3):
            for kx in range(3):
                total[:, ky : ky + 3, kx : kx + 3] += per_field[:, :, :, ky, kx]
        assert_near(total, torch.ones_like(total))


def test_softmax_over_children_would_not_pass() -> None:
    """The commonest mistake in public code, planted: the comparison with the reference must notice it."""
    votes = numbers(*SHAPE)
    logits = torch.zeros(SHAPE[:3], dtype=torch.float64)
    parent = votes
    for iteration in range(3):
        total = torch.einsum("bij,bijp->bjp", logits.softmax(1), votes)
        square = total.square().sum(-1, keepdim=True)
        parent = square / (1 + square) * total / square.sqrt()
        if iteration < 2:
            logits = logits + torch.einsum("bijp,bjp->bij", votes, parent)
    with pytest.raises(AssertionError, match="relative error"):
        assert_near(parent, first(BY_NAME["dynamic"].refer(votes)))


@main_routings
def test_votes_that_are_not_numbers_do_not_go_unnoticed(case: RoutingCase) -> None:
    for poison in (float("nan"), float("inf")):
        votes = numbers(*SHAPE)
        votes[0, 3, 1, 2] = poison
        pose = first(case.run(votes, *case.tensors((2,), 7, 3, 4)))
        assert not bool(pose[0].isfinite().all())
        assert bool(pose[1].isfinite().all())


@main_routings
def test_an_empty_batch_gives_an_empty_result(case: RoutingCase) -> None:
    results, found = gradients(case.run, [numbers(0, 7, 3, 4), *case.tensors((0,), 7, 3, 4)])
    assert results[0].shape == (0, 3, 4)
    assert found[0].shape == (0, 7, 3, 4)


@main_routings
def test_one_child_and_one_parent(case: RoutingCase) -> None:
    results, found = gradients(case.run, [numbers(2, 1, 1, 3), *case.tensors((2,), 1, 1, 3)])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)


@main_routings
def test_zero_votes(case: RoutingCase) -> None:
    results, found = gradients(case.run, [torch.zeros(SHAPE, dtype=torch.float64), *case.tensors((2,), 7, 3, 4)])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)


@main_routings
def test_second_derivatives(case: RoutingCase) -> None:
    votes = numbers(1, 3, 2, 2).requires_grad_()
    tensors = [tensor.requires_grad_() for tensor in case.tensors((1,), 3, 2, 2)]
    assert torch.autograd.gradgradcheck(lambda *t: first(case.run(*t)), [votes, *tensors])


@main_routings
def test_inference_needs_no_gradients(case: RoutingCase) -> None:
    votes, tensors = numbers(*SHAPE), case.tensors((2,), 7, 3, 4)
    with torch.inference_mode():
        assert_near(first(case.run(votes, *tensors)), first(case.run(votes.clone(), *tensors)))


@main_routings
def test_backward_twice(case: RoutingCase) -> None:
    votes = numbers(*SHAPE).requires_grad_()
    pose = first(case.run(votes, *case.tensors((2,), 7, 3, 4)))
    (once,) = torch.autograd.grad(pose.square().sum(), votes, retain_graph=True)
    (twice,) = torch.autograd.grad(pose.square().sum(), votes)
    assert torch.equal(once, twice)


def test_primitives_one_at_a_time() -> None:
    numbers_of_votes = numbers(*SHAPE)
    votes = tensor_votes(numbers_of_votes)
    weight, parent, precision = numbers(2, 7, 3), numbers(2, 3, 4), numbers(2, 3, 4, seed=5).abs()
    deviation = numbers_of_votes - parent.unsqueeze(1)
    assert_near(votes.mix(weight), torch.einsum("bij,bijp->bjp", weight, numbers_of_votes))
    assert_near(votes.mix_squares(weight), torch.einsum("bij,bijp->bjp", weight, numbers_of_votes.square()))
    assert_near(votes.mix_squares(weight, parent), torch.einsum("bij,bijp->bjp", weight, deviation.square()))
    assert_near(votes.agreement(parent), torch.einsum("bjp,bijp->bij", parent, numbers_of_votes))
    assert_near(votes.distance(parent, precision), torch.einsum("bjp,bijp->bij", precision, deviation.square()))
    assert torch.equal(votes.tensor(), numbers_of_votes)
