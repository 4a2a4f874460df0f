"""EM routing: Hinton, Sabour and Frosst, *Matrix Capsules with EM Routing*, ICLR 2018 (Procedure 1)."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.routing.base import (
    Routing,
    Trace,
    VoteShape,
    check_broadcasts,
    check_iterations,
    log_presence,
)
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.built import BlockVotes


def rising_inverse_temperature(num_iters: int, final: float = 0.01) -> tuple[float, ...]:
    """The schedule of λ in the authors' code, ``final · (1 - 0.95^t)`` for t = 1, 2, …; the paper gives none.

    Args:
        num_iters: iterations.
        final: what λ would rise to.

    Returns:
        One λ for each iteration.

    Example:
        >>> [round(each, 6) for each in rising_inverse_temperature(2)]
        [0.0005, 0.000975]
    """
    return tuple(final * (1.0 - 0.95 ** (iteration + 1)) for iteration in range(num_iters))


def em_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    score: Float[Tensor, "..."] | None,
    *,
    beta_cost: Float[Tensor, "#j"],
    beta_active: Float[Tensor, "#j"],
    num_iters: int = 3,
    inverse_temperature: float | Sequence[float] | None = None,
    eps: float = 5e-4,
    trace: Trace | None = None,
) -> Capsules:
    """Route by fitting a Gaussian to the votes for each parent; a parent is active where its votes are cheap to
    describe by it (Hinton 2018, Procedure 1).

    Args:
        votes: an operator, or a tensor of votes.
        score: presence logits of the children; ``None`` means that all are there.
        beta_cost: the paper's β_v, the price of describing a vote at all.
        beta_active: the paper's β_a, the price of a parent.
        num_iters: iterations.
        inverse_temperature: λ, for all iterations or one for each; left out, ``rising_inverse_temperature``.
        eps: added to variances.
        trace: filled with what each iteration comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``; betas: ``(j or 1,)``.
        - result: poses and variances ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents, with the variances of their votes.

    Example:
        >>> beta = torch.zeros(3)
        >>> em_routing(torch.randn(2, 7, 3, 5), torch.zeros(2, 7), beta_cost=beta, beta_active=beta).score.shape
        torch.Size([2, 3])
    """
    operator = tensor_votes(votes)
    check_iterations(num_iters)
    check_broadcasts(beta_cost, (operator.parents,), "beta_cost")
    check_broadcasts(beta_active, (operator.parents,), "beta_active")
    temperatures = _per_iteration(inverse_temperature, num_iters)
    tiny = torch.finfo(operator.dtype).tiny ** 0.5  # the root, so that products of its inverse stay finite

    def route(
        votes: BlockVotes, score: "Tensor | None", beta_cost: Tensor, beta_active: Tensor
    ) -> "tuple[Tensor, ...]":
        votes, origin = votes.centered()  # a Gaussian does not care where the origin lies
        logits = None  # of the couplings R_ij, which are even at first
        log_present = None if score is None else log_presence(score)  # log a_i
        parent_score = mean = variance = origin
        for iteration in range(num_iters):
            # M-step: r'_i = R_ij a_i, as shares of the parent's mass
            share, mass = votes.split_mass(logits, log_present)
            mean, variance = votes.moments(share, floor=mass.new_full((), eps))  # μ_j, σ²_j
            variance = variance + eps
            spread = variance.clamp_min(tiny).log()
            cost = (beta_cost.unsqueeze(-1) + 0.5 * spread) * mass
            parent_score = temperatures[iteration] * (beta_active - cost.sum(-1))
            if trace is not None:
                coupling = votes.compete_evenly() if logits is None else votes.compete(logits)
                trace.record(operator, coupling, mean + origin, parent_score)
            if iteration < num_iters - 1:
                # E-step; 2π is the same for all parents
                log_peak = log_sigmoid(parent_score) - 0.5 * spread.sum(-1)
                logits = votes.distance(mean, -0.5 * (-spread).exp(), log_peak)
        return mean + origin, parent_score, variance

    children = operator.of_children(score)
    mean, parent_score, variance = operator.run(
        route, per_example=[children], shared=[beta_cost, beta_active], whole=trace is not None
    )
    return Capsules(mean, parent_score, variance)


def _per_iteration(inverse_temperature: float | Sequence[float] | None, num_iters: int) -> tuple[float, ...]:
    if inverse_temperature is None:
        return rising_inverse_temperature(num_iters)
    if isinstance(inverse_temperature, (int, float)):
        return (float(inverse_temperature),) * num_iters
    if len(inverse_temperature) != num_iters:
        raise ValueError(
            f"{len(inverse_temperature)} inverse temperatures for {num_iters} iterations; give one for each"
        )
    return tuple(inverse_temperature)


class EMRouting(Routing):
    """EM routing as a module, with β_v and β_a learned for each type of parent (Hinton 2018).

    Args:
        num_iters: iterations.
        inverse_temperature: λ, for all iterations or one for each; left out, ``rising_inverse_temperature``.
        eps: added to variances.
        initial_std: deviation of the layer's vote weights at the start; left out, that of the authors' code, 0.3 in
            convolutions and 0.01 elsewhere.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> EMRouting(sizes=VoteShape(children=7, parents=3, pose=5))(torch.randn(2, 7, 3, 5)).score.shape
        torch.Size([2, 3])
    """

    title = "EM"
    paper = (
        "Hinton, Sabour and Frosst, *Matrix Capsules with EM Routing*, ICLR 2018. "
        "https://openreview.net/forum?id=HJWLfGWRb"
    )
    primary = "matrix"

    # Presences start near a half (λ is small): the margin loss, which stops at 0.1 and 0.9, keeps them there.
    suited_losses = ("cross_entropy", "spread", "binary_cross_entropy")

    def __init__(
        self,
        num_iters: int = 3,
        *,
        inverse_temperature: float | Sequence[float] | None = None,
        eps: float = 5e-4,
        initial_std: float | None = None,
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        check_iterations(num_iters)
        if initial_std is not None and not initial_std > 0:
            raise ValueError(f"a deviation of initial weights is positive; got initial_std={initial_std}")
        self.num_iters, self.eps, self.initial_std = num_iters, eps, initial_std
        self.constant_temperature = isinstance(inverse_temperature, (int, float))
        self.inverse_temperature = _per_iteration(inverse_temperature, num_iters)
        self._attach_given(sizes)

    @classmethod
    def demonstrate(cls, shape: VoteShape) -> "EMRouting":
        """A child that fits is worth about 11, a parent costs 20."""
        routing = cls(inverse_temperature=(0.1, 0.2, 0.3), eps=0.02, sizes=shape)
        nn.init.constant_(routing.beta_cost, 0.7)
        nn.init.constant_(routing.beta_active, -20.0)
        return routing

    @contextmanager
    def iterating(self, num_iters: int) -> Iterator[None]:
        """With another number of iterations: inverse temperatures go on as ``temperatures_for`` has them.

        Args:
            num_iters: iterations for as long as the context lasts.
        """
        before = self.inverse_temperature
        with super().iterating(num_iters):
            self.inverse_temperature = self.temperatures_for(num_iters)
            try:
                yield
            finally:
                self.inverse_temperature = before

    def temperatures_for(self, num_iters: int) -> tuple[float, ...]:
        """λ of another number of iterations: a rising schedule goes on rising whatever its end, a constant stays, and
        the last of other numbers is repeated.

        Args:
            num_iters: iterations.

        Returns:
            One λ for each iteration.

        Example:
            >>> [round(each, 4) for each in EMRouting(2, inverse_temperature=(0.00125, 0.002438)).temperatures_for(3)]
            [0.0013, 0.0024, 0.0024]
            >>> quarter = EMRouting(2, inverse_temperature=rising_inverse_temperature(2, 0.0025))
            >>> [round(each, 6) for each in quarter.temperatures_for(3)] == [0.000125, 0.000244, 0.000357]
            True
        """
        given = self.inverse_temperature
        if not self.constant_temperature:
            final = given[0] / (1.0 - 0.95)
            rising = rising_inverse_temperature(max(num_iters, len(given)), final)
            if all(math.isclose(one, other, rel_tol=1e-9) for one, other in zip(given, rising, strict=False)):
                return (*given, *rising[len(given) :])[:num_iters]
        return (given + given[-1:] * num_iters)[:num_iters]

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        self.beta_cost = nn.Parameter(torch.zeros(shape.parents or 1))
        self.beta_active = nn.Parameter(torch.zeros(shape.parents or 1))

    def weight_std(self, shape: VoteShape) -> float:
        if self.initial_std is not None:
            return self.initial_std
        return 0.3 if shape.convolutional else 0.01  # the authors' code

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        self._attached()
        return em_routing(
            votes,
            score,
            beta_cost=self.beta_cost,
            beta_active=self.beta_active,
            num_iters=self.num_iters,
            inverse_temperature=self.inverse_temperature,
            eps=self.eps,
            trace=trace,
        )
