"""Capsules and squash."""

import pytest
import torch

from tests.support import assert_near, numbers
from torchcaps import Capsules, flatten_grid, squash
from torchcaps.capsules import length_score


def test_squash_is_the_papers_equation() -> None:
    total = numbers(3, 5, 4)
    square = total.square().sum(-1, keepdim=True)
    assert_near(squash(total), square / (1 + square) * total / square.sqrt())


def test_squash_gradient_is_right() -> None:
    assert torch.autograd.gradcheck(squash, [numbers(3, 4).requires_grad_()])
    assert torch.autograd.gradgradcheck(squash, [numbers(3, 4).requires_grad_()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e38])
def test_squash_is_finite_everywhere(size: float, dtype: torch.dtype) -> None:
    total = torch.full((2, 3), size, dtype=dtype, requires_grad=True)
    squashed = squash(total)
    (grad,) = torch.autograd.grad(squashed.sum(), total)
    assert bool(squashed.isfinite().all())
    assert bool(grad.isfinite().all())
    assert bool((squashed.norm(dim=-1) <= 1.0 + 1e-6).all())
    if size == 0.0:
        assert bool((squashed == 0).all())
        assert bool((grad == 0).all())
    if size >= 1e8:
        assert_near(squashed.norm(dim=-1), torch.ones(2, dtype=dtype), 1e-6)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_squash_shows_what_is_not_a_number(poison: float) -> None:
    assert not bool(squash(torch.tensor([1.0, poison])).isfinite().all())


def test_presence_of_a_squashed_capsule_is_its_length() -> None:
    total = numbers(3, 5, 4)
    capsules = Capsules(squash(total), length_score(total))
    assert_near(capsules.presence, capsules.pose.norm(dim=-1))


def test_a_zero_vector_is_absent_with_gradient_zero() -> None:
    total = torch.zeros(2, 3, requires_grad=True)
    score = length_score(total)
    (grad,) = torch.autograd.grad(score.sum(), total)
    assert float(score.sigmoid().detach().max()) < 1e-37
    assert bool((grad == 0).all())


def test_capsules_without_scores_are_all_there() -> None:
    assert torch.equal(Capsules(numbers(2, 5, 4)).presence, torch.ones(2, 5, dtype=torch.float64))


def test_squash_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"at least one number; got shape \(2, 0\)"):
        squash(torch.zeros(2, 0))


def some_capsules() -> Capsules:
    return Capsules(numbers(4, 2, 3, 5, 6), numbers(4, 2, 3, 5), numbers(4, 2, 3, 5, 6, seed=1))


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(1, 3),
        None,
        ...,
        (0, 1),
        (slice(None), 0, 1),
        (..., 2),
        torch.tensor([2, 0]),
        [True, False, True, True],
    ],
)
def test_an_index_is_one_of_the_batch(index) -> None:
    capsules = some_capsules()
    assert capsules.score is not None
    index = torch.tensor(index) if isinstance(index, list) else index
    chosen = capsules.at[index]
    batch = torch.arange(24).reshape(4, 2, 3)[index]
    flat = capsules.flatten(0).pose.reshape(24, 5, 6)
    assert torch.equal(chosen.pose, flat[batch])
    assert chosen.score is not None
    assert torch.equal(chosen.score, capsules.score.reshape(24, 5)[batch])
    assert chosen.variance is not None
    assert Capsules(capsules.pose).at[index].score is None


@pytest.mark.parametrize("index", [(0, 0, 0, 0), (..., 0, 0, 0, 1), torch.ones(4, 2, 3, 5, dtype=torch.bool)])
def test_an_index_beyond_the_batch_is_an_error(index) -> None:
    with pytest.raises(ValueError, match=r"have 3 axes of the batch to index; got an index of 4"):
        some_capsules().at[index]


def test_capsules_move_detach_and_flatten() -> None:
    capsules = Capsules(numbers(4, 2, 3, 5, 6).requires_grad_(), numbers(4, 2, 3, 5))
    assert not capsules.detach().pose.requires_grad
    single = capsules.to(torch.float32)
    assert single.score is not None
    assert single.pose.dtype == single.score.dtype == torch.float32
    assert single.variance is None
    assert capsules.to("meta").pose.is_meta
    assert torch.equal(capsules.flatten().pose, flatten_grid(capsules).pose)
    assert capsules.flatten(2).pose.shape == (4, 2, 15, 6)
    assert capsules.at[0, 0, 0].flatten(0).pose.shape == (5, 6)
    with pytest.raises(ValueError, match=r"start_dim is 0 to 3 .*got 4"):
        capsules.flatten(4)


def test_capsules_unpack_to_their_fields() -> None:
    pose, score, variance = Capsules(numbers(2, 5, 6))
    assert pose.shape == (2, 5, 6)
    assert score is None
    assert variance is None
