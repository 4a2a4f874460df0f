"""The native closed form of shared weights against the plain computation."""

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.kernels.test_kernels import needs_kernels
from tests.support import SINGLE_GRADIENT, SINGLE_VALUE, assert_near, assert_same, gradients, numbers
from torchcaps.kernels.library import without_kernels
from torchcaps.votes import shared_votes
from torchcaps.votes.closed import _win_plainly, win_moments

# Poses of all shapes, parents within, beyond and of whole vectors, children of several tiles and parts.
SIZES = [(1, 1, 1, 1, 1), (2, 70, 4, 4, 5), (1, 1100, 2, 3, 17), (3, 64, 1, 5, 64), (2, 9, 3, 1, 33)]


@needs_kernels
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("even", [False, True])
def test_moments_are_those_of_the_plain_operations(sizes: tuple[int, ...], even: bool) -> None:
    n, i, c, d, j = sizes
    pose, presence = numbers(n, 1, i, c, d), numbers(n, 1, i, seed=1).sigmoid()
    features = c * (d + d * (d + 1) // 2) + 1
    theta = numbers(n, 1, j, features, seed=2) * 0.3
    presence[0, 0, 0] = 0.0
    tensors = [pose, presence] if even else [pose, presence, theta]
    scale = numbers(n, 1, 1 if even else j, features, seed=3)  # so that gradients differ

    def natively(pose: Tensor, presence: Tensor, theta: Tensor | None = None) -> list[Tensor | None]:
        return [win_moments(pose, presence, theta) * scale.to(pose.dtype)]

    def plainly(pose: Tensor, presence: Tensor, theta: Tensor | None = None) -> list[Tensor | None]:
        return [_win_plainly(pose, presence, theta) * scale.to(pose.dtype)]

    assert_same(natively, plainly, tensors)
    assert_same(natively, plainly, [each.float() for each in tensors], SINGLE_VALUE, SINGLE_GRADIENT)


@needs_kernels
def test_second_derivatives_and_many_gradients_at_once() -> None:
    tensors = (numbers(1, 1, 4, 2, 2).requires_grad_(), numbers(1, 1, 4, seed=1).requires_grad_())
    theta = numbers(1, 1, 3, 11, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(win_moments, (*tensors, theta))
    assert torch.autograd.gradgradcheck(win_moments, (*tensors, theta))
    one = torch.autograd.functional.jacobian(win_moments, (*tensors, theta), vectorize=True)
    other = torch.autograd.functional.jacobian(win_moments, (*tensors, theta))
    for each, expected in zip(one, other, strict=True):
        assert_near(each, expected)


def route(pose: Tensor, weight: Tensor, score: Tensor, beta: Tensor) -> list[Tensor | None]:
    votes = shared_votes(pose, weight, rows=2)
    return list(tc.routing.heinsen_routing(votes, score, beta_use=beta, beta_ignore=beta))


@needs_kernels
@pytest.mark.parametrize("children", [1, 1500])  # one beta for all of them, or for each
def test_routing_is_that_of_pytorch_s_operations(children: int) -> None:
    tensors = [numbers(2, 1500, 6), numbers(5, 3, 3, seed=1), numbers(2, 1500, seed=2), numbers(children, 5, seed=3)]

    def without(*given: Tensor) -> list[Tensor | None]:
        with without_kernels():
            return route(*given)

    assert_same(route, without, tensors)


@needs_kernels
def test_results_do_not_depend_on_threads() -> None:
    tensors = [numbers(3, 2500, 6), numbers(20, 3, 3, seed=1), numbers(3, 2500, seed=2), numbers(1, 20, seed=3)]
    single = [each.float() for each in tensors]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            values, grads = gradients(lambda *given: [win_moments(*given)], [
                single[0].view(3, 1, 2500, 2, 3), single[2].view(3, 1, 2500), numbers(3, 1, 20, 19).float(),
            ])  # fmt: skip
            found.append([*values, *grads])
    finally:
        torch.set_num_threads(before)
    for each in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(each, found[0], strict=True))
