"""The equation of fixed-point routing, its solution, and the derivatives of the solution."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.modes import are_batched
from torchcaps.routing.base import Trace
from torchcaps.routing.solving import Solver
from torchcaps.squashing import SQUASHES, squash_to_capsules
from torchcaps.votes import Votes
from torchcaps.votes.built import BlockVotes, Pairs, Parents

Slopes = tuple[Tensor, Tensor]
SLOPES: dict[str, Callable[[Tensor], Slopes]] = {
    "rational": lambda length: (length / (1.0 + length.square()), 2.0 * length / (1.0 + length.square()).square()),
    "exponential": lambda length: (-torch.expm1(-length) / length, (-length).exp()),
}
"""The derivatives of squashes (keys of ``SQUASHES``) at vectors of these lengths: what lies across a vector is
multiplied by the first, what lies along it by the second."""
SLOPE_AT_ZERO = {"rational": 0.0, "exponential": 1.0}
NEAR = 0.01  # change of an iteration below which acceleration sets in


@dataclass(frozen=True)
class SolutionLimits:
    """When to stop: the arguments of ``fixed_point_routing``."""

    max_iters: int
    tolerance: float | None
    anderson: int
    adjoint_iters: int | None
    adjoint_tolerance: float | None
    check_every: int | None
    traced_iters: int

    def __post_init__(self) -> None:
        for name in ("max_iters", "adjoint_iters", "check_every", "traced_iters"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is a number of iterations, at least 1; got {name}={number}")
        for name in ("tolerance", "adjoint_tolerance"):
            number = getattr(self, name)
            if number is not None and not 0.0 <= number < 1.0:
                raise ValueError(f"{name} is a relative change from 0 to below 1; got {name}={number}")
        if self.anderson < 0:
            raise ValueError(f"anderson is how many iterations are combined, 0 for none; got anderson={self.anderson}")

    def choose(self, votes: Votes, *, adjoint: bool) -> Solver:
        """The solver of the forward or of the backward pass."""
        tolerance = torch.finfo(votes.dtype).eps ** 0.75 if self.tolerance is None else self.tolerance
        every = self.check_every or (1 if votes.device.type == "cpu" else None)
        if adjoint:
            tolerance = tolerance if self.adjoint_tolerance is None else self.adjoint_tolerance
            limit = self.adjoint_iters or self.max_iters
            return Solver(limit, tolerance, self.anderson, check_every=every)
        return Solver(self.max_iters, tolerance, self.anderson, NEAR, every)


@dataclass(frozen=True)
class RoutingEquation:
    """The equation of one call, ``s = F(s)``, and its derivatives.

    Args:
        operator: the votes.
        sharpness: β.
        orphan: whether a child may also belong to none of the parents.
        squash: how s becomes a pose, a key of ``SLOPES``.
        limits: when to stop.
        trace: filled with the solution.
    """

    operator: Votes
    sharpness: float
    orphan: bool
    squash: str
    limits: SolutionLimits
    trace: Trace | None

    def solve_implicitly(self, prior: Tensor | None, bias: Tensor | None) -> Tensor:
        """The solution s, with the gradient of the implicit function."""
        return _Implicit.apply(self, prior, bias, *self.operator.tensors)

    def solve(self, prior: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The last iteration, and which examples have converged; ``None`` after one iteration."""
        shared, limits = [prior, bias], self.limits
        if limits.max_iters == 1:
            (total,) = self.operator.run(self._begin_and_record, shared=shared, whole=True)
            return total, None
        recorded = self.trace is not None  # the iteration that is recorded is one more
        solver = limits.choose(self.operator, adjoint=False)
        solver = replace(solver, max_iters=limits.max_iters - 1 - recorded)
        total, converged = self.operator.run(partial(self.iterate, solver), shared=shared, whole=recorded)
        if solver.check_every is not None and not bool(converged.all()):
            _warn("forward", limits.max_iters, solver.tolerance)
        return total, converged

    def unroll(self, prior: Tensor | None, bias: Tensor | None) -> Tensor:
        """So many plain iterations, for those who look through the operations."""

        def route(votes: BlockVotes, prior: "Tensor | None", bias: "Tensor | None") -> "tuple[Tensor]":
            total = self.begin(votes, prior, bias)
            for _ in range(self.limits.traced_iters - 2):
                total = self.step(votes, total, prior, bias)
            return self._step_and_record(votes, total, prior, bias)

        return self.operator.run(route, shared=[prior, bias], whole=True)[0]

    def begin(self, votes: BlockVotes, prior: Tensor | None, bias: Tensor | None) -> Parents:
        """The first iteration: couplings without any agreement."""
        total = votes.mix(self._couple_at_first(votes, prior))
        return total if bias is None else total + bias

    def step(self, votes: BlockVotes, total: Parents, prior: Tensor | None, bias: Tensor | None) -> Parents:
        """F: every further iteration."""
        total = votes.mix(self.compete(votes, self.agree(votes, self.shorten(total), prior)))
        return total if bias is None else total + bias

    def shorten(self, total: Parents) -> Parents:
        """From s to poses."""
        return SQUASHES[self.squash].pose(total)

    def agree(self, votes: BlockVotes, pose: Parents, prior: Tensor | None) -> Pairs:
        """The logits of the couplings."""
        logits = self.sharpness * votes.agreement(pose)
        return logits if prior is None else logits + prior

    def compete(self, votes: BlockVotes, logits: Pairs) -> Pairs:
        return votes.compete(logits, orphan=self.orphan)

    def iterate(
        self, solver: Solver, votes: BlockVotes, prior: Tensor | None, bias: Tensor | None
    ) -> tuple[Parents, Tensor]:
        """The solution of a block, and which examples have one."""
        start = self.begin(votes, prior, bias)
        near, done = solver.solve(lambda total: self.step(votes, total, prior, bias), start)
        if self.trace is not None:
            (near,) = self._step_and_record(votes, near, prior, bias)
        return near, done.to(near.dtype)[:, None, None].expand(*near.shape[:2], 1)

    def carry_back(
        self, grad: Tensor, total: Tensor, converged: Tensor, prior: Tensor | None
    ) -> Float[Tensor, "*b j p"]:
        """The adjoint u = g + Jᵀu of a gradient g, where J is the derivative of F at the solution."""
        again = torch.is_grad_enabled()
        solver = self.limits.choose(self.operator, adjoint=True)

        def route(votes: BlockVotes, total: Tensor, grad: Tensor, converged: Tensor, prior: "Tensor | None"):
            back = _Backward(self, votes, total, prior)
            if again:
                adjoint, done = back.unroll(grad, solver), converged > 0
            else:
                adjoint, done = solver.solve(lambda each: grad + back(each), grad)
                done = done[:, None, None] & (converged > 0)
            return torch.where(done.unsqueeze(-1), adjoint, grad), done.to(grad.dtype)

        arguments = [total, grad, converged]
        adjoint, done = self.operator.run(route, per_example=arguments, shared=[prior])
        if solver.check_every is not None and not bool((done >= converged).all()):
            _warn("backward", solver.max_iters, solver.tolerance)
        return adjoint

    def differentiate(
        self, grad: Tensor, total: Tensor, converged: Tensor | None, prior: Tensor | None, bias: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients in all that requires one: the votes' tensors, the prior and the bias."""
        again, at_once = torch.is_grad_enabled(), are_batched([grad])
        adjoint, shared = grad, [prior, bias]
        with torch.enable_grad():
            if converged is None:
                (image,) = self.operator.run(self._begin_and_record, shared=shared, whole=True)
            elif at_once:  # no primitive takes many gradients at once, but the gradients of all primitives do
                (image,) = self.operator.run(self._go_on, per_example=[total], shared=shared, whole=True)
            else:
                (image,) = self.operator.run(self._step_and_record, per_example=[total], shared=shared)
        if converged is not None and not at_once:
            adjoint = self.carry_back(grad, total, converged, prior)
        ends = [*self.operator.tensors, prior, bias]
        wanted = [end for end in ends if end is not None and end.requires_grad]
        found = iter(torch.autograd.grad(image, wanted, adjoint, create_graph=again, allow_unused=True))
        return [next(found) if end is not None and end.requires_grad else None for end in ends]

    def _go_on(self, votes: BlockVotes, total: Parents, prior: Tensor | None, bias: Tensor | None) -> tuple[Tensor]:
        for _ in range(self.limits.adjoint_iters or self.limits.max_iters):
            total = self.step(votes, total, prior, bias)
        return (total,)

    def _couple_at_first(self, votes: BlockVotes, prior: Tensor | None) -> Tensor:
        if prior is None and not self.orphan:
            return votes.compete_evenly()
        return self.compete(votes, votes.pairs() if prior is None else votes.pairs() + prior)

    def _begin_and_record(self, votes: BlockVotes, prior: Tensor | None, bias: Tensor | None) -> tuple[Tensor]:
        total = self.begin(votes, prior, bias)
        self._record(self._couple_at_first(votes, prior), total)
        return (total,)

    def _step_and_record(
        self, votes: BlockVotes, total: Parents, prior: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor]:
        if self.trace is None:
            return (self.step(votes, total, prior, bias),)
        coupling = self.compete(votes, self.agree(votes, self.shorten(total), prior))
        total = votes.mix(coupling) if bias is None else votes.mix(coupling) + bias
        self._record(coupling, total)
        return (total,)

    def _record(self, coupling: Tensor, total: Tensor) -> None:
        if self.trace is not None:
            self.trace.record(self.operator, coupling, *squash_to_capsules(total, self.squash)[:2])


class _Backward:
    """``u -> Jᵀu`` at a solution, in the primitives of the votes, and by formulas that can be differentiated again."""

    def __init__(self, equation: RoutingEquation, votes: BlockVotes, total: Parents, prior: Tensor | None) -> None:
        self.votes = votes
        self.coupling = equation.compete(votes, equation.agree(votes, equation.shorten(total), prior))
        square = total.square().sum(-1, keepdim=True)
        there = square > 0
        length = torch.where(there, square, 1.0).sqrt()
        self.direction = total / length  # zero where s is
        across, along = SLOPES[equation.squash](length)
        self.across = equation.sharpness * torch.where(there, across, SLOPE_AT_ZERO[equation.squash])
        self.more_along = equation.sharpness * (along - across)  # of what lies along s, beside ``across``

    def __call__(self, adjoint: Parents) -> Parents:
        toward_logits = self.votes.competition.pull_back(self.coupling, self.votes.agreement(adjoint))
        toward_pose = self.votes.mix(toward_logits)
        along = (self.direction * toward_pose).sum(-1, keepdim=True)
        return self.across * toward_pose + self.more_along * along * self.direction

    def unroll(self, grad: Parents, solver: Solver) -> Parents:
        """Plain iteration that can be differentiated, until all has converged."""
        adjoint = grad
        for number in range(1, solver.max_iters + 1):
            before, adjoint = adjoint, grad + self(adjoint)
            if solver.check_every is not None and number % solver.check_every == 0:
                change = (adjoint - before).detach().abs().max()
                if not bool(change > solver.tolerance * adjoint.detach().abs().max()):
                    break
        return adjoint


class _Implicit(torch.autograd.Function):
    """The solution, whose gradient is that of one iteration at it, for the adjoint of what arrives."""

    @staticmethod
    def forward(ctx, equation: RoutingEquation, prior: Tensor | None, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        total, converged = equation.solve(prior, bias)
        ctx.equation = equation
        ctx.save_for_backward(total, converged, prior, bias, *tensors)
        return total

    @staticmethod
    def backward(ctx, *grads: Tensor):
        total, converged, *inputs = ctx.saved_tensors
        again = torch.is_grad_enabled()  # someone will differentiate this gradient
        # Aliases then, so that the graph of this gradient ends at the inputs and goes on by autograd's own means.
        needed = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            prior, bias, *tensors = [
                each if each is None else each.view_as(each) if again else each.detach().requires_grad_(need)
                for each, need in zip(inputs, needed, strict=True)
            ]
        equation = replace(ctx.equation, operator=ctx.equation.operator.made_of(tensors))
        *found, to_prior, to_bias = equation.differentiate(grads[0], total, converged, prior, bias)
        return None, to_prior, to_bias, *found


def _warn(which: str, max_iters: int, tolerance: float) -> None:
    """The same words for the same limits: Python then says them once, not at every step of a training."""
    limits = f"the {which} pass did not converge to a relative change of {tolerance:.0e} in {max_iters} iterations"
    warnings.warn(
        f"fixed-point routing: {limits} for some examples, whose gradients are those of a single iteration; "
        f"more iterations, a larger tolerance or a smaller inverse_temperature help",
        RuntimeWarning,
        stacklevel=7,
    )
