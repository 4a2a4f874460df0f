"""Self-attention routing: Mazzia, Salvetti and Chiaberge, *Efficient-CapsNet: Capsule Network with Self-Attention
Routing*, Scientific Reports 2021."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.routing.base import Routing, Trace, VoteShape, check_broadcasts
from torchcaps.squashing import check_squash, squash_to_capsules
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.built import BlockVotes


def self_attention_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    *,
    prior: Float[Tensor, "#i #j"] | None = None,
    squash: str = "exponential",
    trace: Trace | None = None,
) -> Capsules:
    """Route by the agreement of each vote with all votes for the same parent, once (Efficient-CapsNet 2021).

    There is nothing to iterate: a trace has one entry, with the couplings before the prior is added.

    Args:
        votes: an operator, or a tensor of votes.
        prior: b_ij, added to the couplings after their softmax; zero if left out.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        trace: filled with the result; such a call keeps everything in memory.

    Shape:
        - votes: ``(*b, i, j, p)``; prior: ``(i or 1, j or 1)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents; a score is the logit of its pose's length.

    Example:
        >>> self_attention_routing(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    check_broadcasts(prior, (operator.children, operator.parents), "prior", optional=True)
    check_squash(squash)
    scale = int(operator.pose) ** -0.5  # a tracer has tensors for sizes, in single precision

    def route(votes: BlockVotes, prior: "Tensor | None") -> "tuple[Tensor]":
        alike, there = votes.pairs()[..., :1] + 1.0, votes.there()
        alike = alike if there is None else alike * there.unsqueeze(-1)
        whole = votes.mix(alike)  # all votes for a parent: the row sums of the Gram matrix are products with it
        coupling = votes.compete(votes.agreement(scale * whole))  # c_ij
        used = coupling
        if prior is not None:
            used = coupling + prior if there is None else (coupling + prior) * there.unsqueeze(-1)
        total = votes.mix(used)  # s_j
        if trace is not None:
            trace.record(operator, coupling, *squash_to_capsules(total, squash)[:2])
        return (total,)

    (total,) = operator.run(route, shared=[prior], whole=trace is not None)
    return squash_to_capsules(total, squash)


class SelfAttentionRouting(Routing):
    """Self-attention routing as a module (Efficient-CapsNet 2021).

    Args:
        prior: whether the prior b_ij, which is added to the couplings, is learned.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> SelfAttentionRouting(sizes=VoteShape(children=7, parents=3, pose=5))(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """

    title = "self-attention"
    paper = (
        "Mazzia, Salvetti and Chiaberge, "
        "*Efficient-CapsNet: Capsule Network with Self-Attention Routing*, Scientific Reports 2021. "
        "https://arxiv.org/abs/2101.12491"
    )
    iterates = False
    reads_scores = False
    primary = "squashed"
    suited_losses = ("margin", "cross_entropy", "binary_cross_entropy")

    def __init__(self, *, prior: bool = True, squash: str = "exponential", sizes: VoteShape | None = None) -> None:
        super().__init__()
        self.squash = check_squash(squash)
        self.learn_prior = prior
        self.register_parameter("prior", None)
        self._attach_given(sizes)

    def attach(self, shape: VoteShape) -> None:
        super().attach(shape)
        if self.learn_prior:
            self.prior = nn.Parameter(torch.zeros(shape.children or 1, shape.parents or 1))

    def weight_std(self, shape: VoteShape) -> float:
        is_open = shape.children is None and shape.fan_in == 1
        children, parents = CHILDREN if is_open else shape.fan_in, shape.parents or PARENTS
        return (2.0 / (shape.columns * children * parents)) ** 0.5

    def draw_weights(self, weight: Tensor, shape: VoteShape) -> None:
        """Draw the initial vote weights, in place: normal, cut off at two standard deviations and scaled back to
        ``weight_std``, as the authors' framework has it.

        Args:
            weight: the layer's vote weights ``(..., d, h)``.
            shape: sizes of the layer.
        """
        std = self.weight_std(shape) / STD_OF_CUT_NORMAL
        nn.init.trunc_normal_(weight, std=std, a=-2.0 * std, b=2.0 * std)

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,  # the length of a child's pose is its presence
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        if self.learn_prior:
            self._attached()
        return self_attention_routing(votes, prior=self.prior, squash=self.squash, trace=trace)


CHILDREN, PARENTS = 16, 10  # those of the paper, where a number is open
STD_OF_CUT_NORMAL = 0.8796256610342398  # standard deviation of a normal distribution that is cut off at two of them
