"""Variational Bayes routing: Ribeiro, Leontidis and Kollias, *Capsule Routing via Variational Bayes*, AAAI 2020."""

import math
from numbers import Real
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.norms import normalize_types
from torchcaps.routing.base import Routing, Trace, VoteShape, check_broadcasts, check_iterations
from torchcaps.routing.digamma import digamma
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.built import BlockVotes

Start = Literal["seen", "types"]
"""The first couplings: an equal share for all parents that see the child, or 1/J for J types of parents."""


def vb_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    score: Float[Tensor, "..."] | None,
    *,
    beta_use: Float[Tensor, "#j"],
    beta_active: Float[Tensor, "#j"],
    num_iters: int = 3,
    prior_alpha: float = 1.0,
    prior_kappa: float = 1.0,
    prior_nu: float | None = None,
    prior_mean: float = 0.0,
    prior_psi: float = 1.0,
    start: Start = "seen",
    trace: Trace | None = None,
) -> Capsules:
    """Route by fitting a Gaussian mixture to the votes as Bayesians do, with priors that keep every parent's mean and
    precision in bounds; a parent is active where its Gaussian is certain (Ribeiro 2020, Algorithm 1, diagonal).

    Args:
        votes: an operator, or a tensor of votes.
        score: presence logits of the children; ``None`` means that all are there.
        beta_use: the paper's β_u, the price of a parent's uncertainty.
        beta_active: the paper's β_a, what a parent starts from.
        num_iters: iterations.
        prior_alpha: α₀, the children that every parent's share of the mixture begins with.
        prior_kappa: κ₀, the children whose votes are at ``prior_mean`` to begin with.
        prior_nu: ν₀, degrees of freedom of the precisions, above ``p - 1``; ``p + 1`` if left out.
        prior_mean: m₀, for all components of all poses.
        prior_psi: Ψ₀, the scale of a parent's variances, for all components.
        start: the first couplings: equal shares of all parents that see a child (``"seen"``), or 1/J for J types of
            parents, at however many positions (``"types"``, the authors' code).
        trace: filled with what each iteration comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``; betas: ``(j or 1,)``.
        - result: poses and variances ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents: expected means m, scores A before any norm, and the inverses Φ/ν of the expected precisions.

    Example:
        >>> beta = torch.zeros(3)
        >>> vb_routing(torch.randn(2, 7, 3, 5), torch.zeros(2, 7), beta_use=beta, beta_active=beta).variance.shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    size = int(operator.pose)  # D; under torch.jit.trace sizes are tensors
    freedom = size + 1.0 if prior_nu is None else prior_nu  # ν₀
    check_iterations(num_iters)
    check_broadcasts(beta_use, (operator.parents,), "beta_use")
    check_broadcasts(beta_active, (operator.parents,), "beta_active")
    _check_prior(prior_alpha, prior_kappa, prior_nu, prior_mean, prior_psi, size)
    _check_start(start)

    def route(votes: BlockVotes, score: "Tensor | None", beta_use: Tensor, beta_active: Tensor) -> "tuple[Tensor, ...]":
        presence = None if score is None else log_sigmoid(score).exp().unsqueeze(-1)  # a_i
        coupling = votes.compete_evenly()  # R_ij
        if start == "types":
            coupling = torch.where(coupling > 0, 1.0 / operator.parents, coupling)
        mean = scale = parent_score = freedom_of = coupling
        floor = coupling.new_full((), prior_psi)
        half_steps = 0.5 * torch.arange(size, dtype=coupling.dtype, device=coupling.device)
        for iteration in range(num_iters):
            last = iteration == num_iters - 1
            used = coupling if presence is None else coupling * presence  # r_ij
            mass = votes.mass(used)  # n_j
            alpha, kappa, freedom_of = prior_alpha + mass, prior_kappa + mass, (freedom + mass).unsqueeze(-1)
            mean = (prior_kappa * prior_mean + votes.mix(used)) / kappa.unsqueeze(-1)  # m_j
            # Φ_j. Around m_j in place of the votes' own mean μ_j: Σ_i r (v - μ)² + (κ₀ n / κ) (μ - m₀)² is the same
            # sum, and no parent's votes are divided by a mass that may be zero.
            squares = votes.mix_squares(used, mean, floor=floor)
            scale = prior_psi + squares + prior_kappa * (mean - prior_mean).square()
            log_share = digamma(alpha) - digamma(alpha.sum(-1, keepdim=True))  # π_j
            halves = digamma(0.5 * freedom_of - half_steps).sum(-1)
            log_precision = halves + size * math.log(2.0) - scale.log().sum(-1)  # L_j
            if last or trace is not None:
                # The entropy of the Gaussian, as much of it as the parent has of the mixture.
                entropy = 0.5 * size * math.log(2.0 * math.pi * math.e) - 0.5 * log_precision
                parent_score = beta_active - beta_use - log_share.exp() * entropy  # A_j
            if trace is not None:
                trace.record(operator, coupling, mean, parent_score)
            if not last:
                # ln ρ_ij; 2π is the same for all parents
                log_peak = log_share + 0.5 * log_precision - 0.5 * size / kappa
                coupling = votes.compete(votes.distance(mean, -0.5 * freedom_of / scale, log_peak))
        return mean, parent_score, scale / freedom_of

    children = operator.of_children(score)
    mean, parent_score, variance = operator.run(
        route, per_example=[children], shared=[beta_use, beta_active], whole=trace is not None
    )
    return Capsules(mean, parent_score, variance)


def _check_prior(
    alpha: float, kappa: float, nu: float | None, mean: float, psi: float, size: int | None = None
) -> None:
    """Check the priors for poses of ``size`` numbers, or for poses of any size."""
    for name, value in (("prior_alpha", alpha), ("prior_kappa", kappa), ("prior_psi", psi)):
        if not _is_finite(value) or value <= 0.0:
            raise ValueError(f"{name} is above 0 and finite; got {name}={value!r}")
    if not _is_finite(mean):
        raise ValueError(f"prior_mean is a finite number; got prior_mean={mean!r}")
    if nu is not None and not (_is_finite(nu) and nu > (size or 1) - 1):
        least = "at least 0" if size is None else f"{size - 1} for poses of {size} numbers"
        raise ValueError(f"prior_nu is above p - 1, {least}, and finite; got prior_nu={nu!r}")


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _check_start(start: str) -> None:
    if start not in get_args(Start):
        raise ValueError(f"no start {start!r}; there are {' and '.join(map(repr, get_args(Start)))}")


class VBRouting(Routing):
    """Variational Bayes routing as a module, with β_u and β_a learned for each type of parent (Ribeiro 2020).

    As in the paper, scores and poses then pass a batch norm without learned scale, of each type of parent: scores over
    examples and positions, poses over their components as well. In training a batch that has a single score of each
    type is normalized by the running statistics.

    Args:
        num_iters: iterations.
        normalize_score: whether scores are normalized; if not, they are A_j.
        normalize_pose: whether poses are normalized; if not, they are m_j.
        prior_alpha: α₀, the children that every parent's share of the mixture begins with.
        prior_kappa: κ₀, the children whose votes are at ``prior_mean`` to begin with.
        prior_nu: ν₀, degrees of freedom of the precisions, above ``p - 1``; ``p + 1`` if left out.
        prior_mean: m₀, for all components of all poses.
        prior_psi: Ψ₀, the scale of a parent's variances, for all components.
        start: the first couplings: equal shares of all parents that see a child (``"seen"``), or 1/J for J types of
            parents (``"types"``, the authors' code).
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``; variances are those of the poses before any norm.

    Example:
        >>> VBRouting(sizes=VoteShape(children=7, parents=3, pose=5))(torch.randn(2, 7, 3, 5)).score.shape
        torch.Size([2, 3])
    """

    title = "variational Bayes"
    paper = (
        "Ribeiro, Leontidis and Kollias, *Capsule Routing via Variational Bayes*, AAAI 2020. "
        "https://arxiv.org/abs/1905.11455"
    )
    primary = "batch_norm"

    def __init__(
        self,
        num_iters: int = 3,
        *,
        normalize_score: bool = True,
        normalize_pose: bool = True,
        prior_alpha: float = 1.0,
        prior_kappa: float = 1.0,
        prior_nu: float | None = None,
        prior_mean: float = 0.0,
        prior_psi: float = 1.0,
        start: Start = "seen",
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        check_iterations(num_iters)
        _check_prior(prior_alpha, prior_kappa, prior_nu, prior_mean, prior_psi)
        _check_start(start)
        self.num_iters, self.normalize_score, self.normalize_pose = num_iters, normalize_score, normalize_pose
        self.prior_alpha, self.prior_kappa, self.prior_nu = prior_alpha, prior_kappa, prior_nu
        self.prior_mean, self.prior_psi = prior_mean, prior_psi
        self.start: Start = start
        self.score_norm: nn.BatchNorm1d | None = None
        self.pose_norm: nn.BatchNorm1d | None = None
        self._attach_given(sizes)

    @classmethod
    def demonstrate(cls, shape: VoteShape) -> "VBRouting":
        """Without norms, which one example has no statistics for; priors of votes that lie closer together."""
        routing = cls(normalize_score=False, normalize_pose=False, prior_psi=0.05, prior_kappa=0.05, sizes=shape)
        nn.init.constant_(routing.beta_active, -1.0)
        return routing

    def attach(self, shape: VoteShape) -> None:
        _check_prior(self.prior_alpha, self.prior_kappa, self.prior_nu, self.prior_mean, self.prior_psi, shape.pose)
        super().attach(shape)
        types = shape.parents or 1
        self.beta_use = nn.Parameter(torch.zeros(types))
        self.beta_active = nn.Parameter(torch.zeros(types))
        if self.normalize_score:
            self.score_norm = nn.BatchNorm1d(types, affine=False)
        if self.normalize_pose:
            self.pose_norm = nn.BatchNorm1d(types, affine=False)

    def weight_std(self, shape: VoteShape) -> float:
        # Xavier's of the authors' code, whose fans are children and parents in a field, times numbers of a pose
        parents = (shape.parents or 1) * shape.places
        return (2.0 / ((shape.fan_in + parents) * shape.pose)) ** 0.5

    def draw_weights(self, weight: Tensor, shape: VoteShape) -> None:
        bound = 3.0**0.5 * self.weight_std(shape)
        nn.init.uniform_(weight, -bound, bound)

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        self._attached()
        pose, parent_score, variance = vb_routing(
            votes,
            score,
            beta_use=self.beta_use,
            beta_active=self.beta_active,
            num_iters=self.num_iters,
            prior_alpha=self.prior_alpha,
            prior_kappa=self.prior_kappa,
            prior_nu=self.prior_nu,
            prior_mean=self.prior_mean,
            prior_psi=self.prior_psi,
            start=self.start,
            trace=trace,
        )
        assert parent_score is not None
        if self.score_norm is not None:
            parent_score = normalize_types(self.score_norm, parent_score.unsqueeze(-1)).squeeze(-1)
        if self.pose_norm is not None:
            pose = normalize_types(self.pose_norm, pose)
        return Capsules(pose, parent_score, variance)
