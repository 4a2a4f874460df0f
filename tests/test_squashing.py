"""Squashes: length and score belong together, and nothing breaks at zero or far from it."""

import pytest
import torch

import torchcaps as tc
from tests.support import numbers
from torchcaps.squashing import SQUASHES, exponential_length_score, exponential_squash, squash_to_capsules

every_squash = pytest.mark.parametrize("kind", SQUASHES)


@every_squash
@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0])
def test_the_presence_is_the_length_and_the_direction_stays(kind: str, size: float) -> None:
    total = size * numbers(3, 5, 4)
    capsules = squash_to_capsules(total, kind)
    torch.testing.assert_close(capsules.presence, capsules.pose.norm(dim=-1))
    cosine = torch.nn.functional.cosine_similarity(capsules.pose, total, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_the_exponential_squash_is_its_formula() -> None:
    total = numbers(5, 4)
    length = total.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(exponential_squash(total), (1 - torch.exp(-length)) * total / length)
    torch.testing.assert_close(exponential_length_score(total), torch.log(torch.exp(length) - 1)[..., 0])


@every_squash
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 88.0, 100.0, 1e10, 1e30])
def test_finite_from_zero_to_as_far_as_it_goes(kind: str, dtype: torch.dtype, size: float) -> None:
    total = (size * torch.tensor([[0.6, -0.8, 0.0]], dtype=dtype)).requires_grad_()
    capsules = squash_to_capsules(total, kind)
    assert capsules.score is not None
    (gradient,) = torch.autograd.grad(capsules.pose.sum() + capsules.score.sum(), total)
    assert all(bool(each.isfinite().all()) for each in (capsules.pose, capsules.score, gradient))
    assert capsules.pose.detach().norm().item() <= 1.0 + 1e-6
    if size >= 88.0:
        torch.testing.assert_close(capsules.pose, total / size, rtol=1e-3, atol=1e-6)


def test_a_zero_vector_learns() -> None:
    jacobian = torch.autograd.functional.jacobian(exponential_squash, torch.zeros(3, dtype=torch.float64))
    assert torch.equal(jacobian, torch.eye(3, dtype=torch.float64))
    near = torch.autograd.functional.jacobian(exponential_squash, torch.full((3,), 1e-9, dtype=torch.float64))
    torch.testing.assert_close(near, jacobian)


def test_what_is_no_squash_is_refused() -> None:
    for make in (
        lambda: squash_to_capsules(torch.zeros(2, 3), "cubic"),
        lambda: tc.routing.self_attention_routing(torch.zeros(2, 3, 4), squash="cubic"),
        lambda: tc.SquashedPrimaryCapsules(4, 2, 3, squash="cubic"),
        lambda: tc.routing.UniformRouting(squash="cubic"),
    ):
        with pytest.raises(ValueError, match="no squash 'cubic'; there are 'rational', 'exponential'"):
            make()
    with pytest.raises(ValueError, match=r"at least one number; got shape \(2, 0\)"):
        exponential_squash(torch.zeros(2, 0))


@pytest.mark.parametrize("routing", ["self_attention", "uniform"])
def test_half_precision_by_autocast(routing: str) -> None:
    layer = tc.DenseCapsules(5, 4, 3, 6, routing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(tc.Capsules(torch.randn(1, 5, 4)))
        zero = layer(tc.Capsules(torch.zeros(1, 5, 4)))
    assert found.pose.isfinite().all()
    zero.pose.sum().backward()
    assert zero.pose.abs().max() == 0
    assert all(bool(parameter.grad.isfinite().all()) for parameter in layer.parameters() if parameter.grad is not None)


def test_initial_votes_of_self_attention_are_cut_off() -> None:
    torch.manual_seed(0)
    weight = tc.DenseCapsules(16, 8, 10, 16, "self_attention").weight
    std = (2 / (8 * 16 * 10)) ** 0.5
    torch.testing.assert_close(weight.std().item(), std, rtol=0.02, atol=0.0)
    assert weight.abs().max() <= 2 * std / 0.8796
