"""Fixed-point routing solves its equation, says where it does not, and has the gradient of the solution."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support import assert_near, numbers
from torchcaps.capsules import squash
from torchcaps.routing import FixedPointRouting, dynamic_routing, fixed_point_routing, reference
from torchcaps.routing.solving import Solver
from torchcaps.votes import dense_votes
from torchcaps.votes.paths import Path, force_path

VOTES = numbers(4, 20, 5, 6, scale=0.6)


def step(votes: Tensor, total: Tensor, sharpness: float = 1.0) -> Tensor:
    coupling = (sharpness * torch.einsum("bijp,bjp->bij", votes, squash(total))).softmax(-1)
    return torch.einsum("bij,bijp->bjp", coupling, votes)


def climb(votes: Tensor, total: Tensor) -> Tensor:
    """The function that no iteration lowers (docs/fixed-point.md)."""
    pose = squash(total)
    length = pose.norm(dim=-1)
    potential = length.sqrt().asin() - (length * (1 - length)).sqrt()  # ∫ √(l / (1 - l)) dl
    return torch.einsum("bijp,bjp->bij", votes, pose).logsumexp(-1).sum(-1) - potential.sum(-1)


def plain_steps(votes: Tensor, number: int) -> list[Tensor]:
    totals = [votes.sum(1) / votes.shape[2]]
    for _ in range(number):
        totals.append(step(votes, totals[-1]))
    return totals


def solve(votes: Tensor) -> Tensor:
    """The solution s itself: squash turned around."""
    pose = fixed_point_routing(votes).pose
    length = pose.norm(dim=-1, keepdim=True)
    return pose / length * (length / (1 - length)).sqrt()


def test_dynamic_routing_itself_has_no_fixed_point() -> None:
    trace = tc.routing.Trace()
    dynamic_routing(VOTES, num_iters=300, trace=trace)
    sharpest = [trace.iterations[n].coupling.amax(-1).mean().item() for n in (0, 2, 20, 299)]
    assert sharpest == sorted(sharpest)
    assert sharpest[0] == pytest.approx(0.2)
    assert sharpest[-1] > 0.999  # hard assignments, which the logits go on to leave behind


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 3.0])
def test_another_iteration_changes_nothing(scale: float) -> None:
    votes = scale * VOTES
    total = solve(votes)
    assert_near(step(votes, total), total)


def test_no_iteration_lowers_what_is_maximized() -> None:
    for scale in (0.3, 1.0, 3.0):
        heights = torch.stack([climb(scale * VOTES, total) for total in plain_steps(scale * VOTES, 40)])
        assert bool((heights[1:] >= heights[:-1] - 1e-12).all())
        assert bool((heights[-1] > heights[0] + 1e-6).all())


def test_the_iteration_contracts_at_the_solution() -> None:
    for votes in VOTES.split(1):
        derivative = torch.autograd.functional.jacobian(lambda s, votes=votes: step(votes, s), solve(votes))
        assert isinstance(derivative, Tensor)
        found = torch.linalg.eigvals(derivative.reshape(30, 30))
        assert found.imag.abs().max() < 1e-8
        assert found.real.min() > -1e-8
        assert found.real.max() < 1.0


def test_acceleration_finds_the_same_solution_in_fewer_iterations() -> None:
    counts = {}
    for memory in (0, 5):
        evaluations = [0]

        def counted(total: Tensor, evaluations: list[int] = evaluations) -> Tensor:
            evaluations[0] += 1
            return step(VOTES, total)

        found, done = Solver(500, 1e-12, memory, near=0.01).solve(counted, VOTES.sum(1) / 5)
        assert done.all()
        counts[memory] = evaluations[0], found
    assert_near(counts[5][1], counts[0][1])
    assert counts[5][0] < 0.7 * counts[0][0]


def test_two_iterations_are_two_of_dynamic_routing() -> None:
    for number in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fixed_point_routing(VOTES, max_iters=number)
        assert_near(found.pose, dynamic_routing(VOTES, num_iters=number).pose)


def test_one_iteration_has_its_own_gradient_and_no_warning() -> None:
    ours, theirs = (VOTES.clone().requires_grad_() for _ in range(2))
    fixed_point_routing(ours, max_iters=1).pose.sin().sum().backward()
    dynamic_routing(theirs, num_iters=1).pose.sin().sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert_near(ours.grad, theirs.grad)


def test_without_convergence_one_warning_and_the_gradient_of_a_single_iteration() -> None:
    votes = VOTES.clone().requires_grad_()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        poses = [FixedPointRouting(max_iters=6, anderson=0)(votes).pose for _ in range(3)]  # steps of a training
    (warning,) = said
    assert issubclass(warning.category, RuntimeWarning)
    assert "the forward pass did not converge to a relative change of 2e-12 in 6 iterations" in str(warning.message)
    (found,) = torch.autograd.grad(poses[-1].sin().sum(), votes)
    # The outer gradient at the result, through a single iteration there.
    result = plain_steps(VOTES, 5)[-1].requires_grad_()
    (outer,) = torch.autograd.grad(squash(result).sin().sum(), result)
    (wanted,) = torch.autograd.grad(step(votes, result.detach()), votes, outer)
    assert_near(found, wanted)


def test_a_backward_pass_that_does_not_converge_says_so() -> None:
    votes = VOTES.clone().requires_grad_()
    pose = fixed_point_routing(votes, adjoint_iters=2).pose
    with pytest.warns(RuntimeWarning, match="the backward pass did not converge to a relative change of .* in 2 iter"):
        pose.sin().sum().backward()


def test_examples_that_converge_are_not_touched_by_those_that_do_not() -> None:
    votes = torch.cat([0.01 * VOTES[:1], VOTES[1:2]]).requires_grad_()
    with pytest.warns(RuntimeWarning, match="did not converge"):
        pose = fixed_point_routing(votes, max_iters=12, anderson=0).pose
    (found,) = torch.autograd.grad(pose.sin().sum(), votes)
    alone = votes[:1].detach().requires_grad_()
    mine = fixed_point_routing(alone, max_iters=12, anderson=0).pose
    assert torch.equal(pose[:1], mine)
    assert_near(found[:1], torch.autograd.grad(mine.sin().sum(), alone)[0])


@pytest.mark.parametrize("every", [1, 7, None])
def test_how_often_anyone_looks_changes_nothing(every: int | None) -> None:
    start = VOTES.sum(1) / 5
    wanted, _ = Solver(80, 1e-10).solve(lambda total: step(VOTES, total), start)
    found, done = Solver(80, 1e-10, check_every=every).solve(lambda total: step(VOTES, total), start)
    assert torch.equal(found, wanted)
    assert done.all()


def test_memory_does_not_grow_with_the_iterations() -> None:
    """What the graph holds between the passes: the inputs and the solution, no votes and no iterations."""
    pose, weight = numbers(3, 7, 4).requires_grad_(), numbers(7, 3, 4, 4).requires_grad_()
    held: list[int] = []
    with force_path(Path.PLAIN):
        for tolerance in (1e-1, 1e-12):
            kept: dict[int, int] = {}

            def pack(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
                kept[tensor.data_ptr()] = tensor.numel()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                fixed_point_routing(dense_votes(pose, weight), tolerance=tolerance)
            held.append(sum(kept.values()))
    assert held[0] == held[1]
    assert held[0] < pose.numel() + weight.numel() + 3 * 7 * 3 * 4  # votes would be as many as the last term


def test_float32_converges_to_what_it_can_tell() -> None:
    found = fixed_point_routing(VOTES.float()).pose
    assert_near(found.double(), fixed_point_routing(VOTES).pose, 1e-4)


def test_traced_programs_make_a_fixed_number_of_iterations() -> None:
    votes = 0.3 * VOTES
    exact = fixed_point_routing(votes).pose
    errors = []
    for number in (3, 10, 60):
        mapped = torch.func.vmap(lambda one, n=number: fixed_point_routing(one, traced_iters=n).pose)(votes)
        errors.append((mapped - exact).abs().max().item())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iters": 0}, "max_iters is a number of iterations, at least 1; got max_iters=0"),
        ({"adjoint_iters": -1}, "adjoint_iters is a number of iterations, at least 1; got adjoint_iters=-1"),
        ({"check_every": 0}, "check_every is a number of iterations, at least 1; got check_every=0"),
        ({"traced_iters": 0}, "traced_iters is a number of iterations, at least 1; got traced_iters=0"),
        ({"tolerance": 1.5}, "tolerance is a relative change from 0 to below 1; got tolerance=1.5"),
        ({"adjoint_tolerance": math.nan}, "adjoint_tolerance is a relative change .* got adjoint_tolerance=nan"),
        ({"anderson": -1}, "anderson is how many iterations are combined, 0 for none; got anderson=-1"),
        ({"inverse_temperature": -1.0}, "inverse_temperature is at least 0 and finite; got inverse_temperature=-1.0"),
        ({"inverse_temperature": math.inf}, "inverse_temperature is at least 0 and finite"),
    ],
)
def test_bad_limits_are_refused(options: dict[str, float], message: str) -> None:
    for make in (lambda: fixed_point_routing(VOTES, **options), lambda: FixedPointRouting(**options)):  # pyright: ignore
        with pytest.raises(ValueError, match=message):
            make()


def test_the_exponential_squash_to_second_order_and_at_zero() -> None:
    votes = numbers(1, 4, 2, 3, scale=0.5).requires_grad_()

    def differentiate_twice(route: Callable[..., tc.Capsules]) -> tuple[Tensor, Tensor]:
        (first,) = torch.autograd.grad(route(votes, squash="exponential").pose.sin().sum(), votes, create_graph=True)
        return first.detach(), torch.autograd.grad(first.square().sum(), votes)[0]

    for found, wanted in zip(
        differentiate_twice(fixed_point_routing), differentiate_twice(reference.fixed_point_routing), strict=True
    ):
        assert_near(found, wanted, 1e-8)
    nothing = torch.zeros(1, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    fixed_point_routing(nothing, squash="exponential").pose.sum().backward()
    assert nothing.grad is not None
    assert_near(nothing.grad, torch.full_like(nothing, 0.5))  # the identity times couplings of 1/2


def test_squashes_of_a_fixed_point() -> None:
    for make in (FixedPointRouting, lambda **options: fixed_point_routing(VOTES, **options)):
        with pytest.raises(ValueError, match="no squash 'cubic' of a fixed point; there are 'rational', 'exponential'"):
            make(squash="cubic")
    assert "squash='exponential'" in repr(FixedPointRouting(squash="exponential"))
