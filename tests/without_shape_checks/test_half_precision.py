"""Autocast and half-precision modules change neither the precision of a routing nor that of its gradients."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support import assert_near, numbers
from tests.without_shape_checks.test_transforms import Layer, every_layer, every_routing, make, parts
from torchcaps.votes import dense_votes, limits

# Results are rounded once, to 8 or 11 bits. Gradients that meet in one parameter of a norm are rounded more often.
HALF = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def differentiate(layer: Layer, capsules: tc.Capsules, *, autocast: bool = False) -> list[Tensor]:
    """Results and all gradients, with ``backward()`` under autocast too."""
    pose = capsules.pose.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        found = parts(layer(tc.Capsules(pose, capsules.score)))
        sum((part.cos().sum() for part in found), pose.new_zeros(())).backward()
    assert pose.grad is not None
    return [*found, pose.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


@every_layer
@every_routing
def test_backward_under_autocast(kind: str, routing: str) -> None:
    for one, other in zip(
        differentiate(*make(kind, routing, torch.float32), autocast=True),
        differentiate(*make(kind, routing, torch.float32)),
        strict=True,
    ):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["dense", "shared"])
def test_dynamic_routing_with_all_options_under_autocast(kind: str) -> None:
    def layer() -> tuple[Layer, tc.Capsules]:
        torch.manual_seed(0)
        routing = tc.routing.DynamicRouting(prior=True, bias=True, orphan=True)
        children = 5 if kind == "dense" else None
        return tc.DenseCapsules(children, (2, 3), 4, (2, 3), routing), tc.Capsules(numbers(3, 5, 6).float())

    for one, other in zip(differentiate(*layer(), autocast=True), differentiate(*layer()), strict=True):
        assert torch.equal(one, other)


def test_closed_forms_made_anew_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_PAIRS_KEPT", 0)
    for one, other in zip(
        differentiate(*make("shared", "em", torch.float32), autocast=True),
        differentiate(*make("shared", "em", torch.float32)),
        strict=True,
    ):
        assert torch.equal(one, other)


@every_layer
@every_routing
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_modules(kind: str, routing: str, dtype: torch.dtype) -> None:
    low, capsules = make(kind, routing, torch.float32)
    low = low.to(dtype)
    exact, _ = make(kind, routing, torch.float32)
    exact.load_state_dict(low.state_dict())  # the same rounded parameters
    pose, score = capsules.pose.to(dtype), numbers(*capsules.pose.shape[:-1], seed=1).to(dtype)
    found = differentiate(low, tc.Capsules(pose, score))
    expected = differentiate(exact, tc.Capsules(pose.float(), score.float()))
    largest = max(float(part.detach().abs().max()) for part in expected)
    for one, other in zip(found, expected, strict=True):
        if other.abs().max() > torch.finfo(dtype).max:  # of a prior, where a parent's sum is next to nothing
            assert one.abs().max() == torch.inf
        elif other.abs().max() > 1e-4 * largest:  # what is rounding in single precision is noise here
            assert_near(one, other, HALF[dtype])


def test_running_statistics_of_half_precision_votes() -> None:
    low, capsules = make("normed", "fm", torch.float32)
    exact, _ = make("normed", "fm", torch.float32)
    low.bfloat16()(capsules)
    exact(capsules)
    assert low.vote_norm is not None
    assert exact.vote_norm is not None
    for one, other in zip(low.vote_norm.norm.buffers(), exact.vote_norm.norm.buffers(), strict=True):
        assert_near(one.float(), other.float(), 4 * HALF[torch.bfloat16])


def test_graphs_are_freed_and_kept_as_autograd_does() -> None:
    layer, capsules = make("shared", "em")
    pose = capsules.pose.requires_grad_()
    loss = layer(capsules).pose.cos().sum()
    (once,) = torch.autograd.grad(loss, pose, retain_graph=True)
    (again,) = torch.autograd.grad(loss, pose)
    assert torch.equal(once, again)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("kind", ["shared", "dense"])
def test_second_derivatives(kind: str) -> None:
    layer, capsules = make(kind, "em")
    trace = tc.routing.Trace()
    pose = capsules.pose.requires_grad_()

    def function(pose: Tensor) -> Tensor:
        return layer(tc.Capsules(pose, capsules.score), trace=trace).pose.cos().sum()

    (first,) = torch.autograd.grad(function(pose), pose, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), pose)
    step, direction = 1e-5, numbers(*pose.shape, seed=3)
    ahead, behind = (
        torch.autograd.grad(function(place), place)[0].square().sum()
        for place in ((pose + sign * step * direction).detach().requires_grad_() for sign in (1, -1))
    )
    torch.testing.assert_close((second * direction).sum(), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)
    assert len(trace.iterations) == 9  # three forward passes: routing again in a backward pass is not recorded


def test_votes_of_one_matrix_product_under_autocast() -> None:
    pose, weight = numbers(3, 7, 4).float().requires_grad_(), numbers(7, 3, 4, 4).float()

    def gradient(autocast: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = tc.routing.dynamic_routing(dense_votes(pose, weight), num_iters=1)
            return torch.autograd.grad(result.pose.cos().sum(), pose)[0]

    assert torch.equal(gradient(True), gradient(False))
