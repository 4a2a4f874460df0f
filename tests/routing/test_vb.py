"""Variational Bayes routing: numbers that stay finite, the norms, digamma, priors."""

import math

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from benchmarks.opponents import vb_einsum
from tests.support import assert_near, gradients, numbers
from torchcaps.layers import CapsuleLayer
from torchcaps.norms import PoseNorm, normalize_types
from torchcaps.routing import VBRouting, VoteShape, vb_routing
from torchcaps.routing.digamma import digamma, sum_series


def test_digamma_in_ordinary_operations() -> None:
    for dtype, value, gradient in ((torch.float64, 1e-14, 1e-9), (torch.float32, 1e-6, 1e-6)):
        x = torch.cat([torch.linspace(0.05, 30.0, 500), torch.logspace(-3, 6, 50)]).to(dtype)
        for one, other in zip(
            gradients(lambda x: [sum_series(x)], [x]), gradients(lambda x: [torch.digamma(x)], [x]), strict=True
        ):
            assert bool(((one[0] - other[0]).abs() <= gradient * (1.0 + other[0].abs())).all())
        error = (sum_series(x).double() - torch.digamma(x.double())).abs() / (1.0 + torch.digamma(x.double()).abs())
        assert float(error.max()) <= value


def test_the_gradient_of_the_series_is_the_trigamma_function() -> None:
    x = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(sum_series(x).sum(), x)
    assert_near(
        found, torch.tensor([torch.pi**2 / 6, torch.pi**2 / 2, torch.pi**2 / 6 - 1], dtype=torch.float64), 1e-13
    )


def test_exporters_see_the_series_and_others_pytorchs_own() -> None:
    x = torch.linspace(1.0, 9.0, 5, dtype=torch.float64)
    assert torch.equal(digamma(x), torch.digamma(x))
    program = torch.export.export(Digamma(), (x,))
    assert not any("digamma" in str(node.target) for node in program.graph.nodes)
    assert_near(program.module()(x), torch.digamma(x), 1e-14)


class Digamma(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return digamma(x)


def route(votes: Tensor, score: Tensor, beta: Tensor) -> list[Tensor | None]:
    return list(vb_routing(votes, score, beta_use=beta, beta_active=beta))


def first(results: list[Tensor | None]) -> Tensor:
    assert results[0] is not None
    return results[0]


def route_by_densities(votes: Tensor, presence: Tensor) -> Tensor:
    """The means as the authors' code computes them: densities in place of their logarithms."""
    size, coupling = votes.shape[-1], torch.full_like(votes[..., 0], 1.0 / votes.shape[2])
    mean = votes
    for _ in range(3):
        used = presence.unsqueeze(-1) * coupling
        mass = used.sum(1)
        center = torch.einsum("bij,bijp->bjp", used, votes) / mass.unsqueeze(-1)
        mean = center * (mass / (1.0 + mass)).unsqueeze(-1)
        deviation = torch.einsum("bij,bijp->bjp", used, (votes - center.unsqueeze(1)).square())
        scale, freedom = 1.0 + deviation + mean * center, size + 1.0 + mass
        halves = 0.5 * (freedom.unsqueeze(-1) - torch.arange(size))
        log_precision = torch.digamma(halves).sum(-1) + size * math.log(2.0) - scale.log().sum(-1)
        log_share = torch.digamma(1.0 + mass) - torch.digamma((1.0 + mass).sum(-1, keepdim=True))
        squares = ((votes - mean.unsqueeze(1)).square() / scale.unsqueeze(1)).sum(-1)
        expected = (size / (1.0 + mass)).unsqueeze(1) + freedom.unsqueeze(1) * squares
        log_density = (log_share + 0.5 * log_precision).unsqueeze(1) - 0.5 * (size * math.log(2 * math.pi) + expected)
        coupling = log_density.exp() / log_density.exp().sum(-1, keepdim=True).clamp_min(1e-11)
    return mean


def test_votes_for_which_densities_underflow() -> None:
    """With 16 components and vote weights of deviation 1 the authors' densities are zero, and so is what they are
    divided by."""
    pose, weight = numbers(2, 32, 16, dtype=torch.float32), numbers(32, 5, 16, 16, dtype=torch.float32)
    votes, score = torch.einsum("bid,ijdh->bijh", pose, weight), numbers(2, 32, seed=1, dtype=torch.float32)
    assert not bool(route_by_densities(votes, score.sigmoid()).isfinite().all())
    near = route_by_densities(0.05 * votes, score.sigmoid())
    assert_near(near, first(route(0.05 * votes, score, torch.zeros(5))), 1e-5)
    results, found = gradients(route, [votes, score, torch.zeros(5)])
    assert all(bool(tensor.isfinite().all()) for tensor in results + found)
    exact = route(votes.double(), score.double(), torch.zeros(5).double())
    for one, other in zip(results, exact, strict=True):
        assert other is not None
        assert_near(one.double(), other, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 7, 3, 4), (2, 1, 3, 4)], ids=str)
def test_few_children_and_none_there(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    votes, score, beta = numbers(*shape, dtype=dtype), numbers(*shape[:2], dtype=dtype), numbers(shape[2], dtype=dtype)
    for given in (
        [votes, score, beta],
        [torch.zeros_like(votes), score, beta],
        [votes, torch.full_like(score, float("-inf")), beta],
    ):
        results, found = gradients(route, given)
        assert all(bool(tensor.isfinite().all()) for tensor in results + found)
    pose = first(route(votes, torch.full_like(score, float("-inf")), beta))
    assert not bool(pose.any()), "without children a parent is where the prior says"


def test_without_children_a_parent_is_the_prior() -> None:
    found = vb_routing(
        numbers(1, 5, 2, 3), torch.full((1, 5), float("-inf")).double(), beta_use=torch.zeros(1).double(),
        beta_active=torch.zeros(1).double(), prior_mean=0.5, prior_psi=2.0, prior_nu=8.0,
    )  # fmt: skip
    assert found.variance is not None
    assert_near(found.pose, torch.full((1, 2, 3), 0.5).double())
    assert_near(found.variance, torch.full((1, 2, 3), 0.25).double())


def test_a_plain_einsum_version_comes_to_the_same() -> None:
    pose, weight, score = numbers(2, 6, 4), numbers(6, 3, 4, 5), numbers(2, 6, seed=1)
    beta_use, beta_active = numbers(3, seed=2), numbers(3, seed=3)
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    found = vb_routing(votes, score, beta_use=beta_use, beta_active=beta_active)
    for one, other in zip(found[:2], vb_einsum(pose, weight, score, beta_use, beta_active), strict=True):
        assert one is not None
        assert_near(one, other)


def test_norms_of_scores_and_poses() -> None:
    sizes = VoteShape(7, 3, 4)
    votes, score = numbers(6, 7, 3, 4), numbers(6, 7, seed=1)
    plain = VBRouting(normalize_score=False, normalize_pose=False, sizes=sizes).double()(votes, score)
    routing = VBRouting(sizes=sizes).double()
    found = routing(votes, score)
    assert found.score is not None
    assert plain.score is not None
    assert_near(found.score, nn.BatchNorm1d(3, affine=False).double()(plain.score))
    pose = plain.pose
    mean, variance = pose.mean((0, 2), keepdim=True), pose.var((0, 2), correction=0, keepdim=True)
    assert_near(found.pose, (pose - mean) / (variance + 1e-5).sqrt())
    routing.eval()
    alone, together = routing(votes[:1], score[:1]), routing(votes, score)
    assert_near(alone.pose, together.pose[:1])
    assert not torch.allclose(together.pose, found.pose), "running statistics"


def test_a_batch_of_one_trains() -> None:
    layer = tc.DenseCapsules(7, (2, 2), 3, (2, 2), "vb")
    routing = layer.routing
    assert isinstance(routing, VBRouting)
    assert routing.score_norm is not None
    found = layer(tc.Capsules(torch.randn(1, 7, 4), torch.zeros(1, 7)))
    assert found.score is not None
    (found.score.sum() + found.pose.square().sum()).backward()
    assert layer.weight.grad is not None
    assert bool(layer.weight.grad.isfinite().all())
    assert bool(layer.weight.grad.any())
    assert routing.score_norm.num_batches_tracked == 0


def test_resetting_forgets_statistics() -> None:
    layer = tc.DenseCapsules(7, (2, 2), 3, (2, 2), "vb")
    layer(tc.Capsules(torch.randn(5, 7, 4), torch.zeros(5, 7)))
    assert bool(layer.routing.get_buffer("pose_norm.running_mean").any())
    layer.reset_parameters()
    assert not bool(layer.routing.get_buffer("pose_norm.running_mean").any())


def test_weights_start_as_the_authors_have_them() -> None:
    layer = tc.ConvCapsules(8, (4, 4), 16, (4, 4), kernel_size=3, routing="vb")
    bound = (6.0 / ((8 + 16) * 9 * 16)) ** 0.5
    assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound
    fans = {"vb2020_smallnorb": [3_456, 4_608, 336], "vb2020_smallnorb_tiny": [12_096]}  # (B + C) K² 16
    for name, sums in fans.items():
        layers = [each for each in tc.models.create(name).modules() if isinstance(each, CapsuleLayer)]
        for each, total in zip(layers, sums, strict=True):
            bound = (6.0 / total) ** 0.5
            assert 0.99 * bound < float(each.weight.detach().abs().max()) <= bound, name
    layer = tc.DenseCapsules(40, 16, 10, 16, "self_routing")
    bound = (6.0 / (10 * 16 * 16)) ** 0.5
    assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound


@pytest.mark.parametrize("per", ["component", "type"])
def test_batch_norm_of_poses(per: str) -> None:
    layer = tc.ConvCapsules(2, 4, 3, 4, kernel_size=3, routing="em", pose_norm=per)  # pyright: ignore[reportArgumentType]
    norm = layer.pose_norm
    assert isinstance(norm, PoseNorm)
    assert norm.norm.num_features == (12 if per == "component" else 3)
    pose = layer(tc.Capsules(torch.randn(4, 5, 5, 2, 4), torch.zeros(4, 5, 5, 2))).pose
    axes = (0, 1, 2) if per == "component" else (0, 1, 2, 4)
    torch.testing.assert_close(pose.mean(axes), torch.zeros_like(pose.mean(axes)), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(pose.var(axes, correction=0), torch.ones_like(pose.mean(axes)), atol=2e-2, rtol=0.0)
    half = normalize_types(nn.BatchNorm1d(3).bfloat16(), torch.randn(4, 3, 2))
    assert half.dtype == torch.float32
