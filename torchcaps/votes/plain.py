"""Few votes, built at once, where the time goes into calls and not into numbers: primitives are products and sums.

There is no matrix product here but that which makes the votes, and that one has its own way back: whatever autocast the
backward pass runs under, the gradients are those of full precision, without a graph within the graph.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.kernels import few as kernels
from torchcaps.kernels.few import carry_votes_back, derive, make_votes
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.modes import are_batched, in_full_precision
from torchcaps.votes.built import BlockVotes, Pairs, Parents, Weights
from torchcaps.votes.competition import CompetitionRule
from torchcaps.votes.shares import NativeCompetition

FewValues = Float[Tensor, "n q j i p"]
Some = Sequence[Any]  # tensors, or None where there is none


class PlainVotes(BlockVotes):
    """Few votes as numbers ``(n, q, j, i, p)``. Every primitive is one pass of a kernel, and so is its gradient."""

    def __init__(self, values: FewValues, competition: CompetitionRule) -> None:
        self.values, self.competition = values.contiguous(), competition
        n, q, j, i, _ = values.shape
        self._shape = n, q, i, j
        self._pairs: Pairs | None = None

    def mix(self, weight: Weights) -> Parents:
        return apply_kernel(_MIX, self.values, self._fit(weight))

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        return apply_kernel(_MIX_SQUARES, self.values, self._fit(weight), center)

    def mix_with_squares(self, weight: Weights) -> tuple[Parents, Parents]:
        return apply_kernel(_MIX_BOTH, self.values, self._fit(weight))

    def agreement(self, parent: Parents) -> Pairs:
        return apply_kernel(_AGREEMENT, self.values, parent)

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        distance = apply_kernel(_DISTANCE, self.values, mean, precision)
        return distance if plus is None else distance + plus.unsqueeze(-2)

    def centered(self) -> tuple[BlockVotes, Parents]:
        # Any origin will do, so it is a constant: gradients pass through the votes alone.
        origin = self.values.detach().mean(-2)
        self.values = self.values - origin.unsqueeze(-2)
        return self, origin

    def squared_lengths(self, pose: int) -> Pairs:
        n, q, j, _, p = self.values.shape
        return apply_kernel(_DISTANCE, self.values, None, self.values.new_ones((n, q, j, p)))

    def inverse_lengths(self, pose: int, shortest: float) -> Pairs:
        return apply_kernel(_inverse_lengths(shortest), self.values)

    def split_mass(
        self, logits: Pairs | None, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Weights, Float[Tensor, "n q j 1"]]:
        if logits is None:
            return super().split_mass(logits, log_present)
        return NativeCompetition(self.competition, 1).split(logits, log_present)

    def split_log_mass(
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        return NativeCompetition(self.competition, 1).split(logits, log_present, in_logs=True)

    def attend(self, parent: Parents, scale: float) -> tuple[Parents, Pairs]:
        if self.competition.tables is not None or self.there() is not None:
            return super().attend(parent, scale)
        return apply_kernel(_attention(scale), self.values, parent)

    def pairs(self) -> Pairs:
        if self._pairs is None:
            self._pairs = self.values.new_zeros(()).expand(self._shape)
        return self._pairs

    def compete_evenly(self) -> Float[Tensor, "n q i 1"]:
        return self.competition.evenly(self._shape, self.values)

    def there(self) -> Bool[Tensor, "q i"] | None:
        return self.competition.there(self._shape[2])

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        return self.values.transpose(2, 3)

    def _fit(self, weight: Weights) -> Weights:
        """Weights of the shape that the kernel reads: a route may have some of fewer examples."""
        n, q, i, _ = self._shape
        m, r, k, _ = weight.shape
        return weight if m == n and r == q and k == i else weight.expand(n, q, i, -1)


# The kernels, and what they are in PyTorch's operations, which can be differentiated again. All are derivatives of one
# form (kernels/derive.c). Gradients may come in any memory order, pairs have their children innermost.


def _mix(values: FewValues, weight: Weights) -> Parents:
    return kernels.sum_over_children(values, weight.mT.contiguous())


def _mix_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    values, weight = tensors
    pairs, to_values, to_weight = _prepare(values, weight, wanted)
    derive(values, pairs, linear=grads[0].contiguous(), to_values=to_values, to_pairs=to_weight)
    return to_values, _turn(to_weight)


def _mix_both(values: FewValues, weight: Weights) -> tuple[Parents, Parents]:
    n, q, j, _, p = values.shape
    total, squares = values.new_empty((n, q, j, p)), values.new_empty((n, q, j, p))
    derive(values, weight.mT.contiguous(), to_linear=total, to_square=squares, power=2)
    return total, squares


def _mix_both_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    values, weight = tensors
    linear, square = (None if grad is None else grad.contiguous() for grad in grads)
    pairs, to_values, to_weight = _prepare(values, weight, wanted)
    derive(values, pairs, None, linear, square, to_values=to_values, to_pairs=to_weight, power=2)
    return to_values, _turn(to_weight)


def _mix_squares(values: FewValues, weight: Weights, center: Parents | None) -> Parents:
    n, q, j, _, p = values.shape
    center = None if center is None else center.contiguous()
    derive(values, weight.mT.contiguous(), center, to_square=(squares := values.new_empty((n, q, j, p))))
    return squares


def _mix_squares_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    (values, weight, center), square = tensors, grads[0].contiguous()
    center = None if center is None else center.contiguous()
    pairs, to_values, to_weight = _prepare(values, weight, wanted)
    first = torch.empty_like(square) if wanted[2] else None
    derive(values, pairs, center, square=square, to_values=to_values, to_pairs=to_weight, to_linear=first)
    return to_values, _turn(to_weight), None if first is None else first.mul_(square).mul_(-2.0)


def _agreement(values: FewValues, parent: Parents) -> Pairs:
    return kernels.sum_over_pose(values, parent.contiguous()).mT


def _agreement_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    values, parent = tensors[0], tensors[1].contiguous()
    to_values = torch.empty_like(values) if wanted[0] else None
    to_parent = torch.empty_like(parent) if wanted[1] else None
    derive(values, grads[0].mT.contiguous(), linear=parent, to_values=to_values, to_linear=to_parent)
    return to_values, to_parent


def _distance(values: FewValues, mean: Parents | None, precision: Parents) -> Pairs:
    n, q, j, i, _ = values.shape
    mean = None if mean is None else mean.contiguous()
    derive(values, center=mean, square=precision.contiguous(), to_pairs=(pairs := values.new_empty((n, q, j, i))))
    return pairs.mT


def _distance_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    (values, mean, precision), (of_values, of_mean, of_precision) = tensors, wanted
    mean, precision = None if mean is None else mean.contiguous(), precision.contiguous()
    to_values = torch.empty_like(values) if of_values else None
    first = torch.empty_like(precision) if of_mean else None
    second = torch.empty_like(precision) if of_precision else None
    pairs = grads[0].mT.contiguous()
    derive(values, pairs, mean, square=precision, to_values=to_values, to_linear=first, to_square=second)
    return to_values, None if first is None else first.mul_(precision).mul_(-2.0), second


def _prepare(values: FewValues, weight: Weights, wanted: Sequence[bool]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The weights as the kernel reads them, and room for the gradients in votes and weights."""
    pairs = weight.mT.contiguous()
    return pairs, torch.empty_like(values) if wanted[0] else None, torch.empty_like(pairs) if wanted[1] else None


def _turn(pairs: Tensor | None) -> Tensor | None:
    return None if pairs is None else pairs.mT


def _scale(values: FewValues, weight: Weights) -> FewValues:
    return values * weight.mT.unsqueeze(-1)


def _square_deviations(values: FewValues, center: Parents | None) -> FewValues:
    return (values if center is None else values - center.unsqueeze(-2)).square()


_MIX = Kernel(_mix, _mix_back, lambda values, weight: _scale(values, weight).sum(-2))
_MIX_BOTH = Kernel(
    _mix_both,
    _mix_both_back,
    lambda values, weight: (_scale(values, weight).sum(-2), _scale(values, weight).square().sum(-2)),
)
_MIX_SQUARES = Kernel(
    _mix_squares,
    _mix_squares_back,
    lambda values, weight, center: _scale(_square_deviations(values, center), weight).sum(-2),
)
_AGREEMENT = Kernel(_agreement, _agreement_back, lambda values, parent: (values * parent.unsqueeze(-2)).sum(-1).mT)
_DISTANCE = Kernel(
    _distance,
    _distance_back,
    lambda values, mean, precision: (_square_deviations(values, mean) * precision.unsqueeze(-2)).sum(-1).mT,
)


@lru_cache(maxsize=16)
def _inverse_lengths(shortest: float) -> Kernel:
    return Kernel(
        lambda values: kernels.invert_lengths(values, shortest).mT,
        lambda tensors, grads, wanted: [kernels.invert_lengths(tensors[0], shortest, grads[0].mT.contiguous())],
        lambda values: values.square().sum(-1).clamp_min(shortest).rsqrt().mT,
    )


@lru_cache(maxsize=64)
def _attention(scale: float) -> Kernel:
    def attend(values: FewValues, parent: Parents) -> tuple[Parents, Pairs]:
        total, coupling = kernels.attend(values, parent.contiguous(), scale)
        return total, coupling.mT

    def go_back(tensors: Some, grads: Some, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
        values, parent = tensors[0], tensors[1].contiguous()
        grad = torch.zeros_like(parent) if grads[0] is None else grads[0].contiguous()
        to_coupling = None if grads[1] is None else grads[1].mT.contiguous()
        return kernels.carry_attention_back(values, parent, scale, grad, to_coupling, of_values=wanted[0])

    def plain(values: FewValues, parent: Parents) -> tuple[Parents, Pairs]:
        coupling = (values * (scale * parent).unsqueeze(-2)).sum(-1).softmax(-2)
        return (values * coupling.unsqueeze(-1)).sum(-2), coupling.mT

    return Kernel(attend, go_back, plain)


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
