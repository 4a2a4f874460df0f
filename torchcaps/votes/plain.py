"""Few votes, built at once, where the time goes into calls and not into numbers: primitives are products and sums.

There is no matrix product here but that which makes the votes, and that one has its own way back: whatever autocast the
backward pass runs under, the gradients are those of full precision, without a graph within the graph.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.kernels.library import carry_votes_back, make_votes
from torchcaps.kernels.modes import are_batched, in_full_precision
from torchcaps.votes.built import BlockVotes, Pairs, Parents, Weights
from torchcaps.votes.competition import CompetitionRule

FewValues = Float[Tensor, "n q j i p"]


class PlainVotes(BlockVotes):
    """Few votes as numbers ``(n, q, j, i, p)``."""

    def __init__(self, values: FewValues, competition: CompetitionRule) -> None:
        self.values, self.competition = values, competition
        self._squares: tuple[Parents | None, FewValues, FewValues] | None = None  # center, values, squared deviations

    def mix(self, weight: Weights) -> Parents:
        return (self.values * weight.mT.unsqueeze(-1)).sum(-2)

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        return (self._deviation_squares(center) * weight.mT.unsqueeze(-1)).sum(-2)

    def mix_with_squares(self, weight: Weights) -> tuple[Parents, Parents]:
        scaled = self.values * weight.mT.unsqueeze(-1)
        return scaled.sum(-2), scaled.square().sum(-2)

    def agreement(self, parent: Parents) -> Pairs:
        return (self.values * parent.unsqueeze(-2)).sum(-1).mT

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        distance = (self._deviation_squares(mean) * precision.unsqueeze(-2)).sum(-1)
        return (distance if plus is None else distance + plus.unsqueeze(-1)).mT

    def squared_lengths(self, pose: int) -> Pairs:
        return self._deviation_squares(None).sum(-1).mT

    def centered(self) -> tuple[BlockVotes, Parents]:
        # Any origin will do, so it is a constant: gradients pass through the votes alone.
        origin = self.values.detach().mean(-2)
        self.values = self.values - origin.unsqueeze(-2)
        return self, origin

    def pairs(self) -> Pairs:
        n, q, j, i, _ = self.values.shape
        return self.values.new_zeros(()).expand(n, q, i, j)

    def there(self) -> Bool[Tensor, "q i"] | None:
        return self.competition.there(self.values.shape[-2])

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        return self.values.transpose(2, 3)

    def _deviation_squares(self, center: Parents | None) -> FewValues:
        # A routing measures the variance and then the distances around one mean: one square serves both.
        values = self.values
        if self._squares is None or self._squares[0] is not center or self._squares[1] is not values:
            deviation = values if center is None else values - center.unsqueeze(-2)
            self._squares = center, values, deviation.square()
        return self._squares[2]


def build_few(tensors: Sequence[Tensor]) -> FewValues:
    """Votes by a weight for each pair: tensors as for ``torchcaps.votes.pairs.PairSource``."""
    pose, weight, *bias = tensors
    if torch.is_grad_enabled() and (pose.requires_grad or weight.requires_grad):
        values = _Build.apply(pose, weight)
    else:
        values = make_votes(pose.contiguous(), weight.contiguous())
    if not bias:
        return values
    (given,) = bias  # j or 1, c, h, i or t
    turned = given.permute(0, 3, 1, 2).flatten(2)
    groups = pose.shape[2] // turned.shape[1]
    return values + (turned if groups == 1 else turned.repeat(1, groups, 1))


class _Build(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pose: Float[Tensor, "n q i c d"], weight: Float[Tensor, "t j d h"]) -> FewValues:
        ctx.save_for_backward(pose, weight)
        return make_votes(pose.contiguous(), weight.contiguous())

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        pose, weight = ctx.saved_tensors
        if not torch.is_grad_enabled() and not are_batched(grads):
            return carry_votes_back(pose.contiguous(), weight.contiguous(), grad.contiguous())
        # Someone will differentiate this gradient, or takes many at once.
        with in_full_precision(pose.device):
            (n, q, i, c, d), (t, j, _, h) = pose.shape, weight.shape
            # No einsum and no unflatten: those who take many gradients at once do not know them.
            votes = grad.reshape(n, q, j, i // t, t, c, h).permute(4, 0, 1, 3, 5, 2, 6).reshape(t, -1, j * h)
            poses = pose.reshape(n, q, i // t, t, c, d).permute(3, 0, 1, 2, 4, 5).reshape(t, -1, d)  # t (n q g c) d
            to_pose = torch.bmm(votes, weight.transpose(2, 3).reshape(t, j * h, d)).reshape(t, n, q, -1, c, d)
            to_weight = torch.bmm(poses.transpose(1, 2), votes).reshape(t, d, j, h).transpose(1, 2)
            return to_pose.permute(1, 2, 3, 0, 4, 5).reshape(pose.shape), to_weight
