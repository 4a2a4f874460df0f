"""Uniform routing: capsules without routing, the control that a comparison of routings needs."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.base import Routing, Trace, VoteShape
from torchcaps.squashing import check_squash, squash_to_capsules
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks, Route
from torchcaps.votes.built import BlockVotes

Shares = Literal["parents", "children"]
"""Over what equal weights are normalized: a child's parents, or a parent's children."""


def uniform_routing(
    votes: Votes | Float[Tensor, "*b i j p"],
    *,
    over: Shares = "parents",
    squash: str = "rational",
    trace: Trace | None = None,
) -> Capsules:
    """Weight all votes alike and squash their sum, whatever they say: the parents are what they would be without any
    routing.

    There is nothing to iterate: a trace has one entry with equal couplings. Over the parents it is dynamic routing of
    one iteration.

    Args:
        votes: an operator, or a tensor of votes.
        over: ``"parents"`` shares each child out evenly among the parents that see it, with couplings 1/J;
            ``"children"`` takes the mean of each parent's votes, with weights 1/I.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        trace: filled with the result.

    Shape:
        - votes: ``(*b, i, j, p)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents; a score is the logit of its pose's length.

    Example:
        >>> import torch
        >>> uniform_routing(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """
    operator = tensor_votes(votes)
    _check_shares(over)
    check_squash(squash)

    (total,) = operator.run(_ROUTES[over], asks=Asks.ONE_PRODUCT)
    capsules = squash_to_capsules(total, squash)
    if trace is not None:
        trace.record(operator, _share_evenly(operator), capsules.pose, capsules.score)
    return capsules


def _sum_shares(votes: BlockVotes) -> "tuple[Tensor]":
    return (votes.mix_evenly(),)


def _take_mean(votes: BlockVotes) -> "tuple[Tensor]":
    weight, there = votes.pairs()[..., :1] + 1.0, votes.there()
    weight = weight if there is None else weight * there.unsqueeze(-1)
    return (votes.mix(weight / weight.sum(-2, keepdim=True)),)


_ROUTES: dict[str, Route] = {"parents": _sum_shares, "children": _take_mean}


def _share_evenly(votes: Votes) -> Float[Tensor, "*b i j"]:
    """Equal shares of each child among all parents that see it."""
    return votes.run(lambda votes: (votes.compete_evenly() + votes.pairs(),), whole=True)[0]


def _check_shares(over: str) -> None:
    if over not in _ROUTES:
        raise ValueError(f"over is 'parents' (weights 1/J) or 'children' (weights 1/I); got over={over!r}")


class UniformRouting(Routing):
    """Uniform routing as a module: equal weights for all votes, the control of a comparison.

    Args:
        over: ``"parents"`` shares each child out evenly among the parents that see it, with couplings 1/J;
            ``"children"`` takes the mean of each parent's votes, with weights 1/I.
        squash: how the sum of the votes becomes a pose, a key of ``torchcaps.squashing.SQUASHES``.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> import torch
        >>> UniformRouting(over="children")(torch.randn(2, 7, 3, 5)).pose.shape
        torch.Size([2, 3, 5])
    """

    title = "uniform"
    iterates = False
    couples = False
    reads_scores = False
    primary = "squashed"
    suited_losses = ("margin", "cross_entropy", "binary_cross_entropy")

    def __init__(self, *, over: Shares = "parents", squash: str = "rational", sizes: VoteShape | None = None) -> None:
        super().__init__()
        _check_shares(over)
        self.over: Shares = over
        self.squash = check_squash(squash)
        self._attach_given(sizes)

    def share_agreement(self, votes: Votes) -> Float[Tensor, "*b i j"]:
        """Equal shares of each child among all parents that see it.

        Args:
            votes: the votes.

        Returns:
            Shares ``(*b, i, j)``, which sum to one over the parents.
        """
        return _share_evenly(votes)

    def weight_std(self, shape: VoteShape) -> float:
        return 0.1  # as in dynamic routing, whose first iteration this is

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,  # the length of a child's pose is its presence
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        return uniform_routing(votes, over=self.over, squash=self.squash, trace=trace)
