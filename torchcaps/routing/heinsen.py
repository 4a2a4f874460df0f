"""Heinsen's routing: *An Algorithm for Routing Capsules in All Domains*, 2019 (Algorithm 1)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, log_sigmoid
from torchcaps.routing.base import Routing, Trace, VoteShape, check_broadcasts, check_iterations
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks
from torchcaps.votes.built import BlockVotes

Model = Literal["gaussian", "kmeans"]


def heinsen_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    score: Float[Tensor, "..."] | None,
    *,
    beta_use: Float[Tensor, "#i #j"],
    beta_ignore: Float[Tensor, "#i #j"],
    num_iters: int = 3,
    eps: float = 1e-5,
    model: Model = "gaussian",
    trace: Trace | None = None,
) -> Capsules:
    """Route by what each parent gains from the children it uses, less what it loses from those it ignores (Heinsen
    2019, Algorithm 1).

    Args:
        votes: an operator, or a tensor of votes.
        score: presence logits of the children: +∞ for what is surely there, -∞ for padding; ``None`` means that all are
            there.
        beta_use: gain of using a child.
        beta_ignore: loss of ignoring a child.
        num_iters: iterations.
        eps: added to masses and variances.
        model: how a parent models its votes: by a ``"gaussian"``, or as soft ``"kmeans"``.
        trace: filled with what each iteration comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``; betas: ``(i or 1, j or 1)``.
        - result: poses and variances ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents, with the variances of their votes.

    Example:
        >>> beta = torch.zeros(1, 3)
        >>> heinsen_routing(torch.randn(2, 7, 3, 5), torch.zeros(2, 7), beta_use=beta, beta_ignore=beta).variance.shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    check_iterations(num_iters)
    check_broadcasts(beta_use, (operator.children, operator.parents), "beta_use")
    check_broadcasts(beta_ignore, (operator.children, operator.parents), "beta_ignore")
    if model not in ("gaussian", "kmeans"):
        raise ValueError(f"no model {model!r}; there are 'gaussian' and 'kmeans'")

    only_sums = beta_use.shape[0] == 1  # one beta for all children

    def route(votes: BlockVotes, score: "Tensor | None", beta_use: Tensor, beta_ignore: Tensor) -> "tuple[Tensor, ...]":
        votes, origin = votes.centered()  # a Gaussian does not care where the origin lies
        # f(a_i). Not sigmoid: onnxruntime's has no digits left of presences below 1e-7, by which means are divided.
        presence = votes.pairs()[..., 0] + 1.0 if score is None else log_sigmoid(score).exp()
        loss = _over_children(beta_ignore, presence.unsqueeze(-1), presence.sum(-1, keepdim=True))  # if all are ignored
        parent_score = pose = variance = origin
        gaussian = None  # whose distances are the logits of R_ij, which is even at first
        for iteration in range(num_iters):
            # E-step and D-step: D_use = f(a_i) R_ij; D_ign = f(a_i) - D_use
            used = votes.use(presence, gaussian, only_sums=only_sums)

            mass = votes.mass(used)  # M-step
            gain = _over_children(beta_use + beta_ignore, used, mass)
            parent_score = (gain - loss).expand_as(mass)  # a_j; betas may be one for all parents
            mass = mass.unsqueeze(-1)
            # Dividing by the mass plus eps draws the mean towards zero, which here lies at -origin.
            mixed = votes.mix(used)
            mean = (mixed - eps * origin) / (mass + eps)  # μ_j
            # The same from zero: a small mass makes a small pose, which must not be a difference of large ones.
            pose = (mixed + mass * origin) / (mass + eps)
            last = iteration == num_iters - 1
            squares = votes.mix_squares(used, mean, floor=eps * (mass + eps), coarse=last)
            variance = squares / (mass + eps) + eps  # σ²_j
            if trace is not None:
                coupling = votes.compete_evenly() if gaussian is None else votes.compete(votes.distance(*gaussian))
                trace.record(operator, coupling, pose, parent_score)
            if model == "gaussian":
                log_peak = log_sigmoid(parent_score) - 0.5 * variance.log().sum(-1)
                gaussian = mean, -0.5 / variance, log_peak
            else:
                gaussian = mean, -torch.ones_like(mean), log_sigmoid(parent_score)
        return pose, parent_score, variance

    children = operator.of_children(score)
    pose, parent_score, variance = operator.run(
        route,
        per_example=[children],
        shared=[beta_use, beta_ignore],
        whole=trace is not None,
        asks=Asks.SUMS if only_sums else Asks.ANYTHING,
    )
    return Capsules(pose, parent_score, variance)


def _over_children(beta: Tensor, amount: Tensor, total: Tensor) -> Tensor:
    """``sum_i β_ij amount_ij``; where all children share one β, it is β times their total."""
    return beta[0] * total if beta.shape[0] == 1 else (beta * amount).sum(-2)


class HeinsenRouting(Routing):
    """Heinsen's routing as a module, with learned betas (Heinsen 2019).

    Args:
        num_iters: iterations.
        eps: added to masses and variances.
        model: how a parent models its votes: by a ``"gaussian"``, or as soft ``"kmeans"``.
        shared_betas: whether the gain of using and the loss of ignoring a child are one parameter.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> HeinsenRouting(sizes=VoteShape(children=7, parents=3, pose=5))(torch.randn(2, 7, 3, 5)).variance.shape
        torch.Size([2, 3, 5])
    """

    title = "Heinsen"
    paper = "Heinsen, *An Algorithm for Routing Capsules in All Domains*, 2019. https://arxiv.org/abs/1911.00792"
    vote_bias = True
    primary = "normalized_score"

    def __init__(
        self,
        num_iters: int = 3,
        *,
        eps: float = 1e-5,
        model: Model = "gaussian",
        shared_betas: bool = False,
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        check_iterations(num_iters)
        self.num_iters, self.eps, self.shared_betas = num_iters, eps, shared_betas
        self.model: Model = model
        self._attach_given(sizes)

    @classmethod
    def demonstrate(cls, shape: VoteShape) -> "HeinsenRouting":
        """A child that is used is worth one, a child that is ignored costs a half."""
        routing = cls(eps=0.01, sizes=shape)
        nn.init.constant_(routing.beta_use, 1.0)
        nn.init.constant_(routing.beta_ignore, 0.5)
        return routing

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        self.beta_use = nn.Parameter(torch.zeros(shape.children or 1, shape.parents or 1))
        if not self.shared_betas:
            self.beta_ignore = nn.Parameter(torch.zeros(shape.children or 1, shape.parents or 1))

    def weight_std(self, shape: VoteShape) -> float:
        return 1.0 / shape.columns

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        self._attached()
        return heinsen_routing(
            votes,
            score,
            beta_use=self.beta_use,
            beta_ignore=self.beta_use if self.shared_betas else self.beta_ignore,
            num_iters=self.num_iters,
            eps=self.eps,
            model=self.model,
            trace=trace,
        )
