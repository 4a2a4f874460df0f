"""The native competition and moments against the rules and primitives in PyTorch's operations."""

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.kernels.test_kernels import needs_kernels
from tests.support import DOUBLE, SINGLE_GRADIENT, SINGLE_VALUE, assert_near, assert_same, gradients, numbers
from torchcaps.votes import convolutional_votes, dense_votes, limits
from torchcaps.votes.built import BlockVotes
from torchcaps.votes.competition import CompetitionRule, GridCompetition, ParentCompetition, split_log_mass, split_mass
from torchcaps.votes.grid import Window, grid_tables
from torchcaps.votes.paths import Path, force_path
from torchcaps.votes.shares import NativeCompetition

CPU = torch.device("cpu")
# Whole and part vectors of children, one parent, fields that overlap, that leave children out, and with padding.
RULES: dict[str, tuple[CompetitionRule, tuple[int, int, int, int]]] = {
    "dense": (ParentCompetition(), (3, 1, 37, 5)),
    "one": (ParentCompetition(), (1, 1, 1, 1)),
    "field": (ParentCompetition(torch.tensor([[True, False] * 8, [True] * 16])), (2, 2, 16, 3)),
    "grid": (GridCompetition(grid_tables((5, 6), Window.of(3, stride=2), CPU)), (2, 4, 9 * 5, 4)),
    "padding": (GridCompetition(grid_tables((4, 3), Window.of(3, padding=1), CPU)), (2, 12, 9 * 17, 2)),
    "apart": (GridCompetition(grid_tables((5, 5), Window.of(1, stride=3), CPU)), (1, 4, 2, 3)),
}


@needs_kernels
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_are_those_of_the_rule(name: str, dtype: torch.dtype) -> None:
    rule, shape = RULES[name]
    native = NativeCompetition(rule, threads=2)
    value, gradient = (SINGLE_VALUE, SINGLE_GRADIENT) if dtype == torch.float32 else (DOUBLE, DOUBLE)
    logits, scale = numbers(*shape, dtype=dtype) * 3.0, numbers(*shape, seed=1, dtype=dtype)
    for orphan in (False, True):
        assert_same(
            lambda t, o=orphan: [native.share(t, o) * scale], lambda t, o=orphan: [rule.share(t, o) * scale], [logits],
            value, gradient,
        )  # fmt: skip
        far = 300.0 * logits  # all or nothing
        assert_near(native.share(far, orphan), rule.share(far.double(), orphan).to(dtype), value)


@needs_kernels
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_of_the_mass_are_those_of_the_rule(name: str, dtype: torch.dtype) -> None:
    rule, shape = RULES[name]
    native = NativeCompetition(rule, threads=2)
    value, gradient = (SINGLE_VALUE, SINGLE_GRADIENT) if dtype == torch.float32 else (DOUBLE, DOUBLE)
    logits, scale = numbers(*shape, dtype=dtype) * 5.0, numbers(*shape, seed=1, dtype=dtype)
    present = -numbers(*shape[:3], 1, seed=2, dtype=dtype).abs()
    present[:, :, ::3] *= 40.0  # presences down to 1e-50
    present[0, 0] = torch.finfo(dtype).min / 4  # a field without children

    def natively(logits: Tensor, present: Tensor) -> list[Tensor | None]:
        share, mass = native.split(logits, present)
        return [share * scale, mass]

    def plainly(logits: Tensor, present: Tensor) -> list[Tensor | None]:
        share, mass = split_mass(rule.log_share(logits) + present)
        return [share * scale, mass]

    assert_same(natively, plainly, [logits, present], value, gradient)
    assert_same(
        lambda t: [native.split(t, None)[0] * scale], lambda t: [split_mass(rule.log_share(t))[0] * scale],
        [logits], value, gradient,
    )  # fmt: skip


@needs_kernels
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_children_that_are_kept_from_parents(name: str, dtype: torch.dtype) -> None:
    rule, shape = RULES[name]
    native = NativeCompetition(rule, threads=2)
    value, gradient = (SINGLE_VALUE, SINGLE_GRADIENT) if dtype == torch.float32 else (DOUBLE, DOUBLE)
    logits, scale = numbers(*shape, dtype=dtype), numbers(*shape, seed=1, dtype=dtype)
    logits[numbers(*shape, seed=3) > 0.7] = float("-inf")
    logits[:, :, 0] = float("-inf")  # a child that is kept from all parents
    logits[0, 0, :, 0] = float("-inf")  # a parent that all children are kept from
    present = -numbers(*shape[:3], 1, seed=2, dtype=dtype).abs()
    present[-1, -1] = torch.finfo(dtype).min / 4  # a field without children

    def natively(logits: Tensor, present: Tensor) -> list[Tensor | None]:
        share, log_mass = native.split(logits, present, in_logs=True)
        return [share * scale, log_mass.exp() * scale.mT[..., :1]]

    def plainly(logits: Tensor, present: Tensor) -> list[Tensor | None]:
        share, log_mass = split_log_mass(rule, logits, present)
        return [share * scale, log_mass.exp() * scale.mT[..., :1]]

    assert_same(natively, plainly, [logits, present], value, gradient)
    share, log_mass = native.split(logits, None, in_logs=True)
    assert_near(share, split_log_mass(rule, logits, None)[0], value)
    assert log_mass.isfinite().all()


@needs_kernels
def test_the_native_split_is_differentiated_twice() -> None:
    rule, shape = RULES["dense"]
    native, logits = NativeCompetition(rule, threads=1), (numbers(*shape) * 2.0).requires_grad_()

    def differentiate(share: Tensor, mass: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(share.square().sum() + mass.sin().sum(), logits, create_graph=True)
        return torch.autograd.grad(first.square().sum(), logits)[0]

    assert_near(differentiate(*native.split(logits, None)), differentiate(*split_mass(rule.log_share(logits))))


@needs_kernels
def test_what_is_not_a_number_stays_that() -> None:
    native = NativeCompetition(ParentCompetition(), threads=1)
    logits = numbers(2, 1, 20, 3, dtype=torch.float32)
    logits[0, 0, 4, 1] = float("nan")
    shares = native.share(logits, False)
    assert shares[0, 0, 4].isnan().all()
    assert not shares[1].isnan().any()
    share, mass = native.split(logits, None)
    assert share[0].isnan().any()
    assert mass[0].isnan().any()
    assert not mass[1].isnan().any()


@needs_kernels
@pytest.mark.parametrize(
    "sizes", [(3, 37, 3, 4, 4, 4), (9, 33, 2, 1, 8, 16), (2, 5, 1, 2, 3, 5), (5, 144, 9, 1, 8, 16)]
)
@pytest.mark.parametrize("columns", [1, None])
def test_moments_are_the_mean_and_the_squares_around_it(sizes: tuple[int, ...], columns: int | None) -> None:
    n, i, j, c, d, h = sizes
    tensors = [numbers(n, i, c * d), numbers(i, j, d, h), numbers(n, i, columns or j, seed=1) * 9.0]

    def ask(pose: Tensor, weight: Tensor, logits: Tensor) -> list[Tensor | None]:
        def route(votes: BlockVotes, logits: Tensor) -> tuple[Tensor, ...]:
            return votes.moments(logits.softmax(-2))

        return list(dense_votes(pose, weight, rows=c).run(route, per_example=[logits]))

    def natively(*given: Tensor) -> list[Tensor | None]:
        with force_path(Path.NATIVE):
            return ask(*given)

    def plainly(*given: Tensor) -> list[Tensor | None]:
        with force_path(Path.PLAIN):
            return ask(*given)

    assert_same(natively, plainly, tensors)
    # In single precision as precise however far the votes are from zero.
    pose = 1.0 + 1e-3 * tensors[0]
    exact = plainly(pose.float().double(), tensors[1].float().double(), tensors[2])
    for found, expected in zip(natively(pose.float(), tensors[1].float(), tensors[2].float()), exact, strict=True):
        assert found is not None
        assert expected is not None
        assert_near(found, expected.float(), 1e-4)


@needs_kernels
def test_a_parent_without_shares_has_no_moments() -> None:
    def route(votes: BlockVotes, share: Tensor) -> tuple[Tensor, ...]:
        return votes.moments(share)

    share = torch.zeros(2, 20, 3)
    share[0, 7] = 1.0
    pose, weight = numbers(2, 20, 4, dtype=torch.float32), numbers(20, 3, 4, 4, dtype=torch.float32)
    with force_path(Path.NATIVE):
        mean, squares = dense_votes(pose, weight).run(route, per_example=[share])
    assert_near(mean[0], torch.einsum("d,jdh->jh", pose[0, 7], weight[7]), SINGLE_VALUE)
    assert squares.abs().max() < 1e-6
    assert (mean[1] == 0).all()


@needs_kernels
def test_sums_of_the_forward_pass_serve_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks make their pairs anew, not their sums; unless someone has changed these in the meantime."""
    pose, weight = numbers(4, 6, 6, 3, 16).requires_grad_(), numbers(3, 3, 3, 5, 4, 4).requires_grad_()

    def route(pose: Tensor, weight: Tensor) -> list[Tensor | None]:
        votes = convolutional_votes(pose, weight, stride=1, rows=4)
        return [tc.routing.dynamic_routing(votes).pose, votes.mix(torch.ones(*votes.shape[:-1], dtype=pose.dtype))]

    with force_path(Path.NATIVE):
        expected = gradients(route, [pose, weight])
        monkeypatch.setattr(limits, "MOST_NATIVE_PAIRS_KEPT", 0)
        asked: list[str] = []
        original = tc.kernels.library.run_kernel
        monkeypatch.setattr(
            "torchcaps.votes.native.run_kernel", lambda name, *rest: (asked.append(name), original(name, *rest))[1]
        )
        found = gradients(route, [pose, weight])
        for one, other in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
            assert one is not None
            assert other is not None
            assert_near(one, other)
        # Three mixes and two agreements, and one mix; backward the agreements again, and the gradients of five pairs.
        assert asked.count("sums") == 3 + 1 + 2
        votes = convolutional_votes(pose, weight, stride=1, rows=4)
        mixed = votes.mix(torch.ones(*votes.shape[:-1], dtype=pose.dtype))
        with torch.no_grad():
            mixed.zero_()
        again = torch.autograd.grad(mixed.sum(), [pose, weight])
        votes = convolutional_votes(pose, weight, stride=1, rows=4)
        mixed = votes.mix(torch.ones(*votes.shape[:-1], dtype=pose.dtype))
        for one, other in zip(again, torch.autograd.grad(mixed.sum(), [pose, weight]), strict=True):
            assert torch.equal(one, other)
