"""Fixed points of a map, for every example of a batch by itself: plain iteration or Anderson acceleration."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

State = Float[Tensor, "n *state"]
LATER = 2  # evaluations after which acceleration sets in: what converges at once does not need it


@dataclass(frozen=True)
class Solver:
    """How a fixed point is looked for.

    An example that has converged is left as it is while others go on, so its result depends neither on the rest of the
    batch nor on how often anyone looks whether all are done.

    Args:
        max_iters: evaluations of the map at most.
        tolerance: the largest change by the map, relative to the largest number, at which an example has converged.
        memory: how many earlier steps Anderson acceleration combines; 0 is plain iteration.
        near: acceleration sets in where a step changes less than this, relative to the largest number: before, it may
            jump to another fixed point than the one that plain iteration leads to.
        check_every: after how many evaluations to look whether all examples are done; ``None``: never, which spares the
            host the wait for an accelerator.
    """

    max_iters: int
    tolerance: float
    memory: int = 5
    near: float = float("inf")
    check_every: int | None = 1

    def solve(self, step: Callable[[State], State], start: State) -> tuple[State, Bool[Tensor, "n"]]:
        """Iterate ``step`` from ``start``.

        Args:
            step: the map.
            start: where to begin.

        Returns:
            The last image of each example, and which examples have converged. Numbers that are not finite count as
            converged: they will not change.
        """
        state = found = start
        done: Tensor | None = None  # none, as long as that is known
        past = _Past(self.memory, start) if self.memory else None
        for number in range(1, self.max_iters + 1):
            image = step(state)
            change = _largest(image - state) / _largest(image).clamp_min(torch.finfo(torch.float32).tiny)
            found = image if done is None else torch.where(_column(done, image), found, image)
            look = self.check_every is not None and number % self.check_every == 0
            least, most = (float(end) for end in change.aminmax()) if look and change.numel() else (0.0, float("nan"))
            if done is not None or not (look and least > self.tolerance):  # some may be done
                arrived = ~(change > self.tolerance)
                done = arrived if done is None else done | arrived
            if number == self.max_iters or (look and done is not None and _all(done, most, self.tolerance)):
                break
            following = image
            if past is not None and number > LATER and not (look and least > self.near):
                following = past.accelerate(state, image, change < self.near)
            state = following if done is None else torch.where(_column(done, image), found, following)
        if done is None:
            done = torch.zeros(start.shape[0], dtype=torch.bool, device=start.device)
        return found, done


def _all(done: Bool[Tensor, "n"], most: float, tolerance: float) -> bool:
    """Whether all are done; the largest change tells, unless some changed more before or are not numbers."""
    return most <= tolerance or bool(done.all())


class _Past:
    """The last steps, and the combination of them that would have changed least (Anderson's, of type II).

    In single precision at least, and in units of the first state: squares of what is huge or tiny stay in range.
    """

    def __init__(self, memory: int, start: State) -> None:
        self.memory = memory
        self.dtype = torch.promote_types(start.dtype, torch.float32)
        self.unit = _largest(start).clamp_min(torch.finfo(self.dtype).tiny).unsqueeze(-1)
        self.last: tuple[Tensor, Tensor, Tensor] | None = None  # residual, image, squared length of the residual
        self.residuals: list[Tensor] = []
        self.images: list[Tensor] = []

    def accelerate(self, state: State, image: State, near: Bool[Tensor, "n"]) -> State:
        """Where to evaluate the map next. An example that got worse, or is not near yet, goes on with the image itself
        and forgets the past."""
        flat = image.flatten(1).to(self.dtype) / self.unit
        residual = flat - state.flatten(1).to(self.dtype) / self.unit
        length = residual.square().sum(-1)
        last, self.last = self.last, (residual, flat, length)
        if last is None:
            return image
        trusted = (near & (length <= last[2])).unsqueeze(-1)
        residuals = [*self.residuals, residual - last[0]][-self.memory :]
        self.residuals = [torch.where(trusted, each, 0.0) for each in residuals]
        self.images = [*self.images, flat - last[1]][-self.memory :]
        past, images = torch.stack(self.residuals, 1), torch.stack(self.images, 1)  # n m x
        gram = past @ past.mT
        # Steps that are nearly parallel, or forgotten, leave the products singular.
        ridge = gram.diagonal(dim1=-2, dim2=-1).sum(-1) * (10 * torch.finfo(self.dtype).eps)
        ones = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        ridge = (ridge + torch.finfo(self.dtype).tiny)[:, None, None] * ones
        shares = torch.linalg.solve_ex(gram + ridge, past @ residual.unsqueeze(-1))[0]
        moved = flat - (shares.mT @ images).squeeze(1)
        trusted = trusted & moved.isfinite().all(-1, keepdim=True)
        return torch.where(trusted, moved, flat).mul(self.unit).to(image.dtype).view_as(image)


def _largest(state: State) -> Float[Tensor, "n"]:
    largest = torch.linalg.vector_norm(state.flatten(1), float("inf"), dim=-1)
    return largest if largest.dtype == torch.float64 else largest.float()


def _column(done: Bool[Tensor, "n"], like: State) -> Tensor:
    return done.reshape(-1, *(1,) * (like.ndim - 1))
