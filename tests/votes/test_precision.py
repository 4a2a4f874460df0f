"""Single precision keeps its promise where closed forms lose digits: far from the origin, and in tight clusters."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from tests.support import SINGLE_GRADIENT, SINGLE_VALUE, assert_same, numbers, relative_error
from torchcaps import routing
from torchcaps.routing import reference
from torchcaps.votes import Votes, dense_votes, shared, shared_votes

ROWS = 2
Make = Callable[[Tensor, Tensor, Tensor], Votes]
MAKERS: dict[str, Make] = {
    "closed": lambda pose, weight, bias: shared_votes(pose, weight, bias, rows=ROWS, method="closed"),
    "built": lambda pose, weight, bias: shared_votes(pose, weight, bias, rows=ROWS, method="built"),
}
makers = pytest.mark.parametrize("make", MAKERS)


def literal(pose: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (torch.einsum("bicd,jdh->bijch", pose.unflatten(-1, (ROWS, -1)), weight) + bias).flatten(-2)


def heinsen(votes: Any, score: Tensor, use: Tensor, ignore: Tensor, judge: bool = False) -> list[Tensor | None]:
    function = reference.heinsen_routing if judge else routing.heinsen_routing
    return list(function(votes, score, beta_use=use, beta_ignore=ignore))


def em(votes: Any, score: Tensor, cost: Tensor, active: Tensor, judge: bool = False) -> list[Tensor | None]:
    function = reference.em_routing if judge else routing.em_routing
    temperatures = (0.1, 0.2, 0.3)
    return list(
        function(votes, score, beta_cost=cost[0], beta_active=active[0], inverse_temperature=temperatures, eps=1e-4)
    )


def hold(make: Make, route: Callable[..., list[Tensor | None]], pose: Tensor, value: float, gradient: float) -> None:
    """The routing of single-precision inputs agrees with the double-precision reference of the very same inputs."""
    inputs = [
        tensor.float()
        for tensor in (
            pose,
            numbers(3, pose.shape[-1] // ROWS, 2, scale=0.5),
            numbers(3, ROWS, 2, scale=0.1),
            numbers(*pose.shape[:2]),
            numbers(1, 3, scale=0.1, seed=1),
            numbers(1, 3, scale=0.1, seed=2),
        )
    ]
    assert_same(
        lambda *t: route(make(*t[:3]), *t[3:]),
        lambda *t: route(literal(*t[:3]), *t[3:], judge=True),
        inputs,
        value,
        gradient,
        reference_inputs=[tensor.double() for tensor in inputs],
    )


@makers
@pytest.mark.parametrize("route", [heinsen, em], ids=["heinsen", "em"])
def test_ordinary_poses(make: str, route: Callable[..., list[Tensor | None]]) -> None:
    hold(MAKERS[make], route, numbers(2, 12, 6), SINGLE_VALUE, SINGLE_GRADIENT)


@makers
@pytest.mark.parametrize("route", [heinsen, em], ids=["heinsen", "em"])
def test_poses_with_a_large_common_offset(make: str, route: Callable[..., list[Tensor | None]]) -> None:
    hold(MAKERS[make], route, numbers(2, 12, 6) + 100.0, SINGLE_VALUE, SINGLE_GRADIENT)


@makers
@pytest.mark.parametrize("route", [heinsen, em], ids=["heinsen", "em"])
@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3])
def test_tight_clusters_far_apart(make: str, route: Callable[..., list[Tensor | None]], spread: float) -> None:
    clusters = numbers(3, 6, seed=3, scale=2.0).repeat(4, 1)
    hold(MAKERS[make], route, clusters + numbers(2, 12, 6, scale=spread), SINGLE_VALUE, SINGLE_GRADIENT)


@makers
def test_children_that_all_agree(make: str) -> None:
    hold(MAKERS[make], heinsen, numbers(2, 1, 6).repeat(1, 12, 1), SINGLE_VALUE, SINGLE_GRADIENT)


def half_absent(spread: float) -> tuple[Tensor, Tensor]:
    """Poses in a tight cluster away from the padding, which lies at zero and is not there."""
    pose = 5.0 + numbers(2, 12, 6, scale=spread)
    pose[:, ::2] = 0.0
    score = numbers(2, 12, seed=9)
    score[:, ::2] = float("-inf")
    return pose.float(), score.float()


def routed(pose: Tensor, score: Tensor, method: Literal["closed", "built"]) -> list[Tensor]:
    weight, bias, beta = (t.to(pose.dtype) for t in (numbers(3, 3, 2), numbers(3, ROWS, 2), numbers(1, 3, scale=0.1)))
    votes = shared_votes(pose, weight, bias, rows=ROWS, method=method)
    return [part for part in routing.heinsen_routing(votes, score, beta_use=beta, beta_ignore=beta) if part is not None]


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether any example of each block that was routed in closed form had to be done again."""
    answers: list[bool] = []
    original = shared.QuadraticSource.imprecise

    def watching(self: shared.QuadraticSource, votes: shared.BlockVotes) -> list[int]:
        found = original(self, votes)
        answers.append(bool(found))
        return found

    monkeypatch.setattr(shared.QuadraticSource, "imprecise", watching)
    return answers


@pytest.mark.parametrize(("spread", "expected"), [(10.0, False), (1e-2, True)])
def test_falls_back_to_double_precision_only_where_it_must(
    fallbacks: list[bool], spread: float, expected: bool
) -> None:
    routed(*half_absent(spread), "closed")
    assert fallbacks == [expected]


def test_the_fallback_saves_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    pose, score = half_absent(1e-2)
    exact = routed(pose.double(), score.double(), "built")
    errors = [relative_error(a, b) for a, b in zip(routed(pose, score, "closed"), exact, strict=True)]
    assert max(errors) <= SINGLE_VALUE
    monkeypatch.setattr(shared, "LARGEST_MOMENT_RATIO", float("inf"))
    errors = [relative_error(a, b) for a, b in zip(routed(pose, score, "closed"), exact, strict=True)]
    assert max(errors) > 10 * SINGLE_VALUE


def test_dense_votes_far_from_the_origin() -> None:
    pose, weight = (numbers(2, 7, 6) + 100.0).float(), numbers(7, 3, 3, 2, scale=0.5).float()
    rest = [numbers(2, 7).float(), numbers(1, 3, seed=1).float(), numbers(1, 3, seed=2).float()]
    inputs = [pose, weight, *rest]
    assert_same(
        lambda *t: em(dense_votes(t[0], t[1], rows=ROWS), *t[2:]),
        lambda *t: em(
            torch.einsum("bicd,ijdh->bijch", t[0].unflatten(-1, (ROWS, -1)), t[1]).flatten(-2), *t[2:], judge=True
        ),
        inputs,
        SINGLE_VALUE,
        SINGLE_GRADIENT,
        reference_inputs=[tensor.double() for tensor in inputs],
    )


# Presence of the children down to e^-60 = 1e-26, and parents that no child favors.
@makers
@pytest.mark.parametrize("route", [heinsen, em], ids=["heinsen", "em"])
@pytest.mark.parametrize("score", [-20.0, -45.0, -60.0])
def test_parents_of_hardly_any_mass(make: str, route: Callable[..., list[Tensor | None]], score: float) -> None:
    hold(MAKERS[make], lambda votes, s, *rest, **more: route(votes, s + score, *rest, **more), numbers(2, 12, 6),
         SINGLE_VALUE, SINGLE_GRADIENT)  # fmt: skip


def spread_em(votes: Any, score: Tensor, judge: bool = False) -> list[Tensor | None]:
    function, beta = reference.em_routing if judge else routing.em_routing, torch.zeros(2, dtype=score.dtype)
    temperatures = (0.1, 0.2, 0.3)
    return list(function(votes, score, beta_cost=beta, beta_active=beta, inverse_temperature=temperatures, eps=1e-2))


def plain_heinsen(votes: Any, score: Tensor, judge: bool = False) -> list[Tensor | None]:
    beta = torch.zeros(1, 2, dtype=score.dtype)
    return heinsen(votes, score, beta, beta, judge)


@pytest.mark.parametrize("route", [plain_heinsen, spread_em], ids=["heinsen", "em"])
@pytest.mark.parametrize("far", [10.0, 1e2, 1e4])
def test_parents_that_no_child_favors(route: Callable[..., list[Tensor | None]], far: float) -> None:
    votes = torch.stack([numbers(1, 6, 4, scale=0.05), numbers(1, 6, 4, seed=1, scale=far)], 2)
    inputs = [votes.float(), numbers(1, 6).float() - 9.0]
    doubles = [tensor.double() for tensor in inputs]
    judge = lambda *t: route(*t, judge=True)  # noqa: E731
    assert_same(route, judge, inputs, SINGLE_VALUE, SINGLE_GRADIENT, reference_inputs=doubles)


def test_activated_attention_of_parents_that_no_child_favors() -> None:
    def step(votes: Tensor, parents: Tensor) -> list[Tensor | None]:
        beta, score = votes.new_zeros(2), votes.new_zeros(1, 6)
        found = routing.active_inverted_attention_step(
            votes, score, parents, beta_cost=beta, beta_active=beta, inverse_temperature=1.0, scale=1.0
        )
        last = found.pose[:, 1]
        assert float(last.detach().abs().max()) < 1e-19
        return [last / last.detach().abs().amax(), found.score]

    inputs = [numbers(1, 6, 2, 4).abs().float() + 0.5, torch.tensor([[[8.0] * 4, [-8.0] * 4]])]
    doubles = [tensor.double() for tensor in inputs]
    assert_same(step, step, inputs, SINGLE_VALUE, SINGLE_GRADIENT, reference_inputs=doubles)


@makers
def test_masses_that_are_not_normal_numbers(make: str) -> None:
    inputs = [numbers(2, 12, 6), numbers(3, 3, 2, scale=0.5), numbers(3, ROWS, 2), numbers(2, 12) - 90.0]
    leaves = [tensor.float().requires_grad_() for tensor in inputs]
    beta = torch.zeros(1, 3)
    votes = MAKERS[make](leaves[0], leaves[1], leaves[2])
    found = routing.heinsen_routing(votes, leaves[3], beta_use=beta, beta_ignore=beta, model="kmeans")
    gradients = torch.autograd.grad(found.pose.sum() + found.score.sum(), leaves)  # pyright: ignore
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
