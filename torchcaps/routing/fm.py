"""FM agreement: Zhao, Wang and Huang, *An Efficient Agreement Mechanism in CapsNets by Pairwise Product*, ECAI 2020."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.kernels.few import make_unit
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import take_kernels
from torchcaps.routing.base import Routing, Trace, VoteShape
from torchcaps.votes import Votes, tensor_votes
from torchcaps.votes.blocks import Asks
from torchcaps.votes.built import BlockVotes

SHORTEST = 1e-12  # below this length a pose is not stretched to a unit vector
SHORTEST_SQUARE = 1e-10  # below this squared length a vote is not stretched to a unit vector (the authors' code)


def fm_agreement(
    votes: Votes | Float[Tensor, "*b i j p"],
    *,
    normalize: bool = True,
    unit_pose: bool = True,
    trace: Trace | None = None,
) -> Capsules:
    """Agree by the product of every pair of votes, which takes no more than their sum and the sum of their squares
    (Zhao 2020, Algorithm 1).

    There is nothing to iterate: a trace has one entry with equal couplings.

    Args:
        votes: an operator, or a tensor of votes.
        normalize: whether votes are made unit vectors and the sum is divided by their number (Algorithm 1); if not, the
            plain sum over pairs (Eq. 5).
        unit_pose: whether the pose is p_j, of length one; if not, s_j itself, which is what a next capsule layer takes.
        trace: filled with the result.

    Shape:
        - votes: ``(*b, i, j, p)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parents.

    Example:
        >>> fm_agreement(torch.randn(2, 7, 3, 5)).score.shape
        torch.Size([2, 3])
    """
    operator = tensor_votes(votes)

    children = _count_children(operator)
    # Σ over pairs of u ⊙ u' = ½ ((Σ u)² - Σ u²), Eq. 5; divided by the number of votes, Eq. 8
    factor = 0.5 / children if normalize and isinstance(children, int) else 0.5

    def route(votes: BlockVotes) -> "tuple[Tensor]":
        if normalize:
            total, squares = votes.mix_units(operator.pose, SHORTEST_SQUARE)
        else:
            weight, there = votes.pairs()[..., :1] + 1.0, votes.there()
            total, squares = votes.mix_with_squares(weight if there is None else weight * there.unsqueeze(-1))
        # factor (total² - squares), in two operations
        return (-factor * torch.addcmul(squares, total, total, value=-1.0),)

    (total,) = operator.run(route, asks=Asks.ONE_UNIT_SUM if normalize else Asks.ANYTHING)  # s_j
    if not isinstance(children, int) or children == 1:
        total = total * (children > 1)  # no pair, no agreement: what is left of the difference is rounding
    if normalize and not isinstance(children, int):
        total = total / children
    capsules = Capsules(_make_unit(total) if unit_pose else total, total.sum(-1))  # p_j and a_j
    if trace is not None:
        even = total.new_full(operator.shape[:-1], 1.0 / operator.parents)
        if operator.there is not None:
            even = even * operator.there.unsqueeze(-1)
        trace.record(operator, even, capsules.pose, capsules.score)
    return capsules


def _make_unit(total: Float[Tensor, "*b p"]) -> Float[Tensor, "*b p"]:
    return apply_kernel(_UNIT, total) if take_kernels(total) else F.normalize(total, dim=-1, eps=SHORTEST)


_UNIT = Kernel(
    lambda total: make_unit(total.contiguous(), SHORTEST),
    lambda tensors, grads, wanted: [make_unit(tensors[0].contiguous(), SHORTEST, grads[0].contiguous())],
    lambda total: F.normalize(total, dim=-1, eps=SHORTEST),
)


def _count_children(votes: Votes) -> "int | Float[Tensor, '*b 1 1']":
    """The children that a parent sees; at the border of a padded grid there are fewer."""
    there = votes.there
    if there is None:
        return votes.children
    return there.sum(-1)[..., None, None].to(votes.dtype)


def agreement_contributions(votes: Votes, *, normalize: bool = True) -> Float[Tensor, "*b i j"]:
    """What each child adds to the pairwise agreement on each parent (Eq. 5): half the product of its vote with the sum
    of all others. The sum over the children is the parent's score."""
    numbers = votes.tensor()
    if normalize:
        numbers = numbers * numbers.square().sum(-1, keepdim=True).clamp_min(SHORTEST_SQUARE).rsqrt()
    if votes.there is not None:  # children in the padding of a convolution add nothing
        numbers = numbers * votes.there[..., None, None]
    others = numbers.sum(-3, keepdim=True) - numbers
    agreement = 0.5 * (numbers * others).sum(-1)
    return agreement / _count_children(votes) if normalize else agreement


class FMAgreement(Routing):
    """FM agreement as a module (Zhao 2020).

    Args:
        normalize: whether votes are made unit vectors and the sum over pairs is divided by their number.
        unit_pose: whether poses are made unit vectors.
        sizes: sizes of the votes, for a routing that is used without a layer; a layer gives its own.

    Shape:
        - votes: ``(*b, i, j, p)``; score: ``(*b, i)``.
        - result: poses ``(*b, j, p)``, scores ``(*b, j)``.

    Returns:
        The parent ``Capsules``.

    Example:
        >>> FMAgreement(unit_pose=False)(torch.randn(2, 7, 3, 5)).score.shape
        torch.Size([2, 3])
    """

    title = "FM"
    paper = (
        "Zhao, Wang and Huang, "
        "*An Efficient Agreement Mechanism in CapsNets by Pairwise Product*, ECAI 2020. "
        "https://arxiv.org/abs/2004.00272"
    )
    iterates = False
    couples = False
    reads_scores = False
    evidence = "agreement"
    primary = "normalized"

    def __init__(self, *, normalize: bool = True, unit_pose: bool = True, sizes: VoteShape | None = None) -> None:
        super().__init__()
        self.normalize, self.unit_pose = normalize, unit_pose
        self._attach_given(sizes)

    def share_agreement(self, votes: Votes) -> Float[Tensor, "*b i j"]:
        """What each child adds to the agreement on each parent, where that is positive, as a part of all that it adds;
        even where it agrees with nobody.

        Args:
            votes: the votes.

        Returns:
            Shares ``(*b, i, j)``, which sum to one over the parents.
        """
        positive = agreement_contributions(votes, normalize=self.normalize).clamp_min(0.0)
        total = positive.sum(-1, keepdim=True)
        return torch.where(total > 0, positive / total.clamp_min(1e-30), 1.0 / votes.parents)

    def measure_evidence(self, parents: Capsules, coupling: Float[Tensor, "*b i j"]) -> Float[Tensor, "*b j"]:
        assert parents.score is not None
        return parents.score

    def weight_std(self, shape: VoteShape) -> float:
        return shape.columns**-0.5  # keeps the size of a pose; batch norm follows in the paper's layers

    def forward(
        self,
        votes: Votes | Float[Tensor, "*b i j p"],
        score: Float[Tensor, "..."] | None = None,  # the paper's agreement takes the children's poses alone
        *,
        trace: Trace | None = None,
    ) -> Capsules:
        return fm_agreement(votes, normalize=self.normalize, unit_pose=self.unit_pose, trace=trace)
