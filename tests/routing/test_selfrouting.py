"""Self-routing: presences that sum to one, children kept from parents, logits of poses and of votes."""

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support import assert_near, gradients, numbers
from torchcaps.routing import SelfRouting, VoteShape, self_routing
from torchcaps.routing.selfrouting import share_score
from torchcaps.votes import dense_votes
from torchcaps.votes.children import map_children


def route(votes: Tensor, score: Tensor, logits: Tensor) -> list[Tensor | None]:
    return list(self_routing(votes, score, logits=logits))


def test_presences_sum_to_one() -> None:
    found = self_routing(numbers(2, 7, 3, 4), numbers(2, 7, seed=1), logits=numbers(2, 7, 3, seed=2, scale=9.0))
    assert_near(found.presence.sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_children_absent_or_kept_from_all_parents(dtype: torch.dtype) -> None:
    """The authors' code divides zero by zero."""
    votes, score, logits = (numbers(*shape).to(dtype) for shape in ((2, 7, 3, 4), (2, 7), (2, 7, 3)))
    absent, kept = torch.full_like(score, float("-inf")), torch.full_like(logits, float("-inf"))
    for given in ([votes, absent, logits], [votes, score, kept], [votes, absent, kept]):
        results, found = gradients(route, given)
        assert all(bool(tensor.isfinite().all()) for tensor in results + found)
        assert_near(results[1], torch.full_like(results[1], 0.5).log(), 1e-6)  # a third of the presence each


def test_a_child_kept_from_all_parents_is_as_good_as_absent() -> None:
    votes, score, logits = numbers(2, 7, 3, 4), numbers(2, 7, seed=1), numbers(2, 7, 3, seed=2)
    logits[:, 5:] = float("-inf")
    one = route(votes, score, logits)
    other = route(votes[:, :5], score[:, :5], logits[:, :5])
    for found, expected in zip(one[:2], other[:2], strict=True):
        assert found is not None
        assert expected is not None
        assert_near(found, expected)


def test_a_parent_that_all_children_are_kept_from_is_absent() -> None:
    logits = numbers(2, 7, 3)
    logits[..., 0] = float("-inf")
    results, found = gradients(route, [numbers(2, 7, 3, 4), numbers(2, 7, seed=1), logits])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)
    assert not bool(results[1].sigmoid()[:, 0].any())


def test_the_score_of_a_share_has_all_its_digits() -> None:
    """Next to a share of 1 - 1e-12 a difference from one would have none left in single precision."""
    log_mass = torch.tensor([0.0, -28.0, -40.0])
    exact = log_mass.double()
    mass = exact.exp()
    wanted = torch.stack([exact[k] - (mass.sum() - mass[k]).log() if k else -mass[1:].sum().log() for k in range(3)])
    assert_near(share_score(log_mass).double(), wanted, 1e-6)
    assert bool(share_score(torch.zeros(2, 1)).isfinite().all()), "a parent without rivals"


def test_logits_are_linear_in_the_poses() -> None:
    pose, weight = numbers(2, 6, 4), numbers(6, 3, 4, 5)
    routing = SelfRouting(sizes=VoteShape(6, 3, 5, in_pose=4)).double()
    assert (routing.logit_weight.shape, routing.logit_bias.shape) == ((6, 3, 4), (6, 3))
    assert not bool(routing.logit_weight.any())
    assert not bool(routing.logit_bias.any())
    torch.nn.init.normal_(routing.logit_weight)
    torch.nn.init.normal_(routing.logit_bias)
    expected = torch.einsum("bid,ijd->bij", pose, routing.logit_weight) + routing.logit_bias
    assert_near(routing.make_logits(dense_votes(pose, weight)), expected)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("types", [1, 3, 6])
def test_a_linear_map_of_each_child(types: int, batch: tuple[int, ...]) -> None:
    pose, weight = numbers(*batch, 6, 4).requires_grad_(), numbers(types, 5, 4).requires_grad_()
    found, expected = (
        map_children(pose, weight),
        torch.einsum("...id,ijd->...ij", pose, weight.repeat(6 // types, 1, 1)),
    )
    assert_near(found, expected)
    arriving = torch.randn_like(expected)
    results = [torch.autograd.grad(result, [pose, weight], arriving) for result in (found, expected)]
    for one, other in zip(*results, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("padding", [0, 1])
def test_logits_in_a_convolution(padding: int) -> None:
    """Each place of a field has weights of its own; in the padding there is nothing to route."""
    layer = tc.ConvCapsules(2, 4, 3, 5, kernel_size=3, stride=2, routing="self_routing", padding=padding).double()
    routing = layer.routing
    assert isinstance(routing, SelfRouting)
    assert layer.competition == "field"
    torch.nn.init.normal_(routing.logit_weight)
    capsules = tc.Capsules(numbers(2, 5, 5, 2, 4), numbers(2, 5, 5, 2, seed=1))
    votes = layer.votes(capsules)
    padded = torch.nn.functional.pad(capsules.pose, (0, 0, 0, 0, *[padding] * 4))
    fields = padded.unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 5, 6, 3, 4).flatten(3, 5)  # b y x i d
    assert votes.child_poses is not None
    assert_near(votes.child_poses, fields)
    assert_near(routing.make_logits(votes), torch.einsum("byxid,ijd->byxij", fields, routing.logit_weight))
    assert_near(layer(capsules).presence.sum(-1), torch.ones(2, *votes.shape[1:3], dtype=torch.float64))


def test_class_capsules_over_a_grid_have_logits_of_each_type() -> None:
    layer = tc.ClassCapsules(2, (2, 2), 3, (2, 2), "self_routing")
    assert isinstance(layer.routing, SelfRouting)
    assert layer.routing.logit_weight.shape == (2, 3, 4)
    assert layer(tc.Capsules(torch.randn(2, 5, 3, 2, 4), torch.zeros(2, 5, 3, 2))).score.shape == (2, 3)


def test_votes_of_one_number_are_the_logits() -> None:
    layer = tc.DenseCapsules(6, 4, 3, 1, SelfRouting(logits="votes")).double()
    assert layer.bias is not None
    assert not bool(layer.weight.any()), "all start from zero, as logits do"
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.normal_(layer.bias)
    capsules = tc.Capsules(numbers(2, 6, 4), numbers(2, 6, seed=1))
    logits = layer.votes(capsules).tensor()[..., 0]
    share = torch.einsum("bi,bij->bj", capsules.presence, logits.softmax(-1)) / capsules.presence.sum(-1, keepdim=True)
    assert_near(layer(capsules).presence, share)
