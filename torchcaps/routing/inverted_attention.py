"""Inverted dot-product attention: Tsai, Srivastava, Goh and Salakhutdinov, *Capsules with Inverted Dot-Product
Attention Routing*, ICLR 2020 (Procedure 1)."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.routing.base import (
    Routing,
    Trace,
    VoteShape,
    check_broadcasts,
    check_iterations,
    log_presence,
)
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks
from torchcaps.votes.built import BlockVotes
from torchcaps.votes.norm import normalize


def inverted_attention_step(
    votes: Votes | Float[Tensor, "*b i j p"],
    parents: Float[Tensor, "*b j p"] | None = None,
    *,
    norm: Callable[[Tensor], Tensor] | None = None,
    scale: float | None = None,
    trace: Trace | None = None,
) -> Float[Tensor, "*b j p"]:
    """One step: parents compete for the attention of each child, then take the mean of the votes that they won (Tsai
    2020, Procedure 1).

    Args:
        votes: an operator, or a tensor of votes.
        parents: poses of the step before; ``None`` is the first step, where all are alike.
        norm: layer normalization of the new poses.
        scale: what the agreement is multiplied by: ``1 / √p`` if left out, as the authors' code has it; the paper's own
            equation is ``scale=1``.
        trace: filled with what the step comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; parents: ``(*b, j, p)``; the result has the shape of the parents.

    Returns:
        The poses of the parents.

    Example:
        >>> pose = inverted_attention_step(torch.randn(2, 7, 3, 5))
        >>> inverted_attention_step(torch.randn(2, 7, 3, 5), pose, norm=nn.LayerNorm(5)).shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    _check_parents(operator, parents)
    factor = float(operator.pose) ** -0.5 if scale is None else scale
    finish = partial(_normalize, norm)

    def route(votes: BlockVotes, parents: "Tensor | None") -> "tuple[Tensor]":
        if parents is None:
            pose = votes.mix(coupling := votes.compete_evenly())
        else:
            pose, coupling = votes.attend(parents, factor)  # p_j and r_ij, Eqs. 2 to 4
        if trace is not None:
            trace.record(operator, coupling, finish(pose), None)
        return (pose,)

    # The first step is one matrix product over the whole batch.
    asks = Asks.ONE_PRODUCT if parents is None else Asks.ANYTHING
    (pose,) = operator.run(route, per_example=[parents], whole=trace is not None, asks=asks)
    return finish(pose)


def active_inverted_attention_step(
    votes: Votes | Float[Tensor, "*b i j p"],
    score: Float[Tensor, "..."] | None,
    parents: Float[Tensor, "*b j p"] | None = None,
    *,
    beta_cost: Float[Tensor, "#j"],
    beta_active: Float[Tensor, "#j"],
    inverse_temperature: float = 0.01,
    eps: float = 5e-4,
    norm: Callable[[Tensor], Tensor] | None = None,
    scale: float | None = None,
    trace: Trace | None = None,
) -> Capsules:
    """The step with activations of the kind that EM routing has (the paper's ablation C).

    A child's votes count by its presence, and a parent's score is ``λ (β_a - Σ_h (β_v + log σ_h) Σ_i r_ij a_i)`` with
    the spread of the votes that it won, around their mean before normalization.

    Args:
        votes: an operator, or a tensor of votes.
        score: presence logits of the children; ``None`` means that all are there.
        parents: poses of the step before; ``None`` is the first step, where all are alike.
        beta_cost: β_v, the price of describing a vote at all.
        beta_active: β_a, the price of a parent.
        inverse_temperature: λ.
        eps: added to variances.
        norm: layer normalization of the new poses.
        scale: what the agreement is multiplied by; ``1 / √p`` if left out.
        trace: filled with what the step comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``; parents: ``(*b, j, p)``; betas: ``(j or 1,)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents.

    Example:
        >>> beta = torch.zeros(3)
        >>> votes = torch.randn(2, 7, 3, 5)
        >>> active_inverted_attention_step(votes, torch.zeros(2, 7), beta_cost=beta, beta_active=beta).score.shape
        torch.Size([2, 3])
    """
    operator = tensor_votes(votes)
    _check_parents(operator, parents)
    check_broadcasts(beta_cost, (operator.parents,), "beta_cost")
    check_broadcasts(beta_active, (operator.parents,), "beta_active")
    factor = float(operator.pose) ** -0.5 if scale is None else scale
    finish = partial(_normalize, norm)

    def route(
        votes: BlockVotes, score: "Tensor | None", parents: "Tensor | None", beta_cost: Tensor, beta_active: Tensor
    ):
        logits = None if parents is None else votes.agreement(factor * parents)
        share, mass = votes.split_mass(logits, None if score is None else log_presence(score))
        mean, variance = votes.moments(share, floor=mass.new_full((), eps))
        pose, variance = mean * mass, variance + eps
        cost = (beta_cost.unsqueeze(-1) + 0.5 * variance.log()) * mass
        parent_score = inverse_temperature * (beta_active - cost.sum(-1))
        if trace is not None:
            coupling = votes.compete_evenly() if logits is None else votes.compete(logits)
            trace.record(operator, coupling, finish(pose), parent_score)
        return pose, parent_score

    children = operator.of_children(score)
    pose, parent_score = operator.run(
        route, per_example=[children, parents], shared=[beta_cost, beta_active], whole=trace is not None
    )
    return Capsules(finish(pose), parent_score)


def _normalize(norm: Callable[[Tensor], Tensor] | None, pose: Tensor) -> Tensor:
    return pose if norm is None else normalize(norm, pose)


def _check_parents(votes: Votes, parents: Tensor | None) -> None:
    expected = (*votes.batch_shape, votes.parents, votes.pose)
    if parents is not None and tuple(parents.shape) != expected:
        raise ValueError(f"parents of shape {tuple(parents.shape)}; the votes are for {expected}")


class InvertedAttention(Routing):
    """Inverted dot-product attention as a module (Tsai 2020).

    By itself it iterates within its layer, the paper's sequential ablation (B); ``concurrent_routing`` calls ``step``
    over a stack of layers.

    Args:
        num_iters: iterations.
        normalize: whether new poses pass a layer normalization; the paper's ablation A goes without.
        activations: whether capsules have a presence (C).
        scale: what the agreement is multiplied by; ``1 / √p`` if left out.
        inverse_temperature: λ of the activations.
        eps: added to variances, of the activations.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)`` with ``activations``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> InvertedAttention(sizes=VoteShape(children=7, parents=3, pose=5))(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """

    title = "inverted attention"
    paper = (
        "Tsai, Srivastava, Goh and Salakhutdinov, "
        "*Capsules with Inverted Dot-Product Attention Routing*, ICLR 2020. "
        "https://arxiv.org/abs/2002.04764"
    )
    stepwise = True
    reads_scores = False
    gives_scores = False
    evidence = "attention won"
    competition = "field"  # as the authors' code routes: each receptive field alone
    primary = "layer_norm"
    head = "linear"

    def __init__(
        self,
        num_iters: int = 2,
        *,
        normalize: bool = True,
        activations: bool = False,
        scale: float | None = None,
        inverse_temperature: float = 0.01,
        eps: float = 5e-4,
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        check_iterations(num_iters)
        self.num_iters, self.normalize, self.activations = num_iters, normalize, activations
        self.scale, self.inverse_temperature, self.eps = scale, inverse_temperature, eps
        self.reads_scores = self.gives_scores = activations
        self.norm: nn.Module | None = None
        self._attach_given(sizes)

    @classmethod
    def demonstrate(cls, shape: VoteShape) -> "InvertedAttention":
        """One iteration more than the paper's networks make, so that there is something to see."""
        return cls(3, sizes=shape)

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        if self.normalize:
            self.norm = nn.LayerNorm(shape.pose)
        if self.activations:
            self.beta_cost = nn.Parameter(torch.zeros(shape.parents or 1))
            self.beta_active = nn.Parameter(torch.zeros(shape.parents or 1))

    def weight_std(self, shape: VoteShape) -> float:
        # the authors' code: √(parents / (columns · children in the field))
        return ((shape.parents or 1) / (shape.columns * shape.fan_in)) ** 0.5

    def step(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        parents: Capsules | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        """One step of Procedure 1, from the parents of the step before.

        Args:
            votes: an operator, or a tensor of votes.
            score: presence logits of the children, which only ``activations`` read.
            parents: the parents of the step before; ``None`` the first time.
            trace: filled with what the step comes to.

        Returns:
            The parents of this step.
        """
        self._attached()
        pose = None if parents is None else parents.pose
        if not self.activations:
            return Capsules(inverted_attention_step(votes, pose, norm=self.norm, scale=self.scale, trace=trace))
        return active_inverted_attention_step(
            votes,
            score,
            pose,
            beta_cost=self.beta_cost,
            beta_active=self.beta_active,
            inverse_temperature=self.inverse_temperature,
            eps=self.eps,
            norm=self.norm,
            scale=self.scale,
            trace=trace,
        )

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        parents = self.step(votes, score, trace=trace)
        for _ in range(self.num_iters - 1):
            parents = self.step(votes, score, parents, trace=trace)
        return parents
