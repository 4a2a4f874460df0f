"""Dynamic routing: Sabour, Frosst and Hinton, *Dynamic Routing Between Capsules*, NIPS 2017 (Procedure 1)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.routing.base import Routing, Trace, VoteShape, check_broadcasts, check_iterations
from torchcaps.squashing import SQUASHES, check_squash, squash_to_capsules
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks
from torchcaps.votes.built import BlockVotes


def dynamic_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    *,
    num_iters: int = 3,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    coupling_gradient: bool = True,
    squash: str = "rational",
    trace: Trace | None = None,
) -> Capsules:
    """Route by the agreement of each vote with the parent that it helped to make (Sabour 2017, Procedure 1).

    Args:
        votes: an operator, or a tensor of votes.
        num_iters: iterations.
        prior: logits b_ij to start from; zero if left out.
        bias: added to each parent's input s_j.
        orphan: whether a child may also belong to none of the parents (§7).
        coupling_gradient: whether gradients pass through the couplings of all iterations; some implementations take
            them for constants.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        trace: filled with what each iteration comes to; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; prior: ``(i or 1, j or 1)``; bias: ``(j or 1, p or 1)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents; a score is the logit of its pose's length.

    Example:
        >>> dynamic_routing(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    check_iterations(num_iters)
    shorten = SQUASHES[check_squash(squash)].pose
    check_broadcasts(prior, (operator.children, operator.parents), "prior", optional=True)
    check_broadcasts(bias, (operator.parents, operator.pose), "bias", optional=True)

    def route(votes: BlockVotes, prior: "Tensor | None", bias: "Tensor | None") -> "tuple[Tensor]":
        logits = votes.pairs() if prior is None else votes.pairs() + prior  # b_ij
        total = logits
        for iteration in range(num_iters):
            if iteration == 0 and prior is None and not orphan:
                coupling = votes.compete_evenly()
            else:
                coupling = votes.compete(logits, orphan=orphan)  # c_ij, Eq. 3
            total = votes.mix(coupling if coupling_gradient else coupling.detach())  # s_j, Eq. 2
            total = total if bias is None else total + bias
            if trace is not None:
                trace.record(operator, coupling, *squash_to_capsules(total, squash)[:2])
            if iteration < num_iters - 1:
                logits = logits + votes.agreement(shorten(total))  # v_j, Eq. 1
        return (total,)

    asks = Asks.ONE_PRODUCT if num_iters == 1 and prior is None and not orphan else Asks.ANYTHING
    (total,) = operator.run(route, shared=[prior, bias], whole=trace is not None, asks=asks)
    return squash_to_capsules(total, squash)


class DynamicRouting(Routing):
    """Dynamic routing as a module (Sabour 2017).

    Args:
        num_iters: iterations.
        prior: whether the logits b_ij to start from are learned.
        bias: whether a bias of each parent's input s_j is learned.
        orphan: whether a child may also belong to none of the parents (§7).
        coupling_gradient: whether gradients pass through the couplings of all iterations.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> DynamicRouting(num_iters=2)(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """

    title = "dynamic"
    paper = "Sabour, Frosst and Hinton, *Dynamic Routing Between Capsules*, NIPS 2017. https://arxiv.org/abs/1710.09829"
    reads_scores = False
    primary = "squashed"
    suited_losses = ("margin", "cross_entropy", "binary_cross_entropy")

    def __init__(
        self,
        num_iters: int = 3,
        *,
        prior: bool = False,
        bias: bool = False,
        orphan: bool = False,
        coupling_gradient: bool = True,
        squash: str = "rational",
        sizes: VoteShape | None = None,
    ) -> None:
        super().__init__()
        check_iterations(num_iters)
        self.num_iters, self.orphan, self.coupling_gradient = num_iters, orphan, coupling_gradient
        self.learn_prior, self.learn_bias, self.squash = prior, bias, check_squash(squash)
        self.register_parameter("prior", None)
        self.register_parameter("bias", None)
        self._attach_given(sizes)

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        if self.learn_prior:
            self.prior = nn.Parameter(torch.zeros(shape.children or 1, shape.parents or 1))
        if self.learn_bias:
            self.bias = nn.Parameter(torch.zeros(shape.parents or 1, shape.pose))

    def weight_std(self, shape: VoteShape) -> float:
        return 0.1  # the authors' code; the paper does not say

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,  # the length of a child's pose is its presence
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        return dynamic_routing(
            votes,
            num_iters=self.num_iters,
            prior=self.prior,
            bias=self.bias,
            orphan=self.orphan,
            coupling_gradient=self.coupling_gradient,
            squash=self.squash,
            trace=trace,
        )
