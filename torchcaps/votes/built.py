"""Votes that are there as numbers, a block of them at a time, in the memory order that the primitives like best.

The values are held as ``(n, q, j, p, i)``: examples, positions, parents, pose components, children. With the children
innermost every primitive runs along whole rows: a weighted sum over them is a dot product of rows, and an inner product
over the pose is a sum of ``p`` rows.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.votes.competition import CompetitionRule, split_log_mass, split_mass

Values = Float[Tensor, "n q j p i"]
Pairs = Float[Tensor, "n q i j"]
Parents = Float[Tensor, "n q j p"]
Gaussian = tuple[Parents | None, Parents, Float[Tensor, "n q j"] | None]  # what ``distance`` takes
Weights = Float[Tensor, "n q i #j"]  # one column where all parents have the same weights, as in every first iteration


class BlockVotes:
    """What a routing sees of the votes: the four primitives, the competition for each child, and the shared origin.

    Shapes are ``(n, q, i, j)`` for what belongs to a pair and ``(n, q, j, p)`` for what belongs to a parent.
    """

    competition: CompetitionRule

    def mix(self, weight: Weights) -> Parents:
        """``sum_i w_ij v_ij``"""
        raise NotImplementedError

    def mix_evenly(self) -> Parents:
        """``mix`` by the couplings of the first iteration"""
        return self.mix(self.compete_evenly())

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        """``sum_i w_ij (v_ij - center_j)²``, per component. ``floor`` is what the caller will add to the result: what
        is smaller need not be resolved. ``coarse`` says that the result per weight will be read next to its largest
        number only, as the outcome of a routing is."""
        raise NotImplementedError

    def agreement(self, parent: Parents) -> Pairs:
        """``<v_ij, parent_j>``"""
        raise NotImplementedError

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        """``sum_p precision_jp (v_ijp - mean_jp)² + plus_j``; without a mean, from zero"""
        raise NotImplementedError

    def mix_with_squares(self, weight: Weights) -> tuple[Parents, Parents]:
        """``sum_i w_ij v_ij`` and ``sum_i (w_ij v_ij)²``, per component"""
        return self.mix(weight), self.mix_squares(weight.square())

    def mix_units(self, pose: int, shortest: float) -> tuple[Parents, Parents]:
        """``mix_with_squares`` of the unit votes of all children that are there, by ``inverse_lengths``"""
        weight, there = self.inverse_lengths(pose, shortest), self.there()
        return self.mix_with_squares(weight if there is None else weight * there.unsqueeze(-1))

    def squared_lengths(self, pose: int) -> Pairs:
        """``<v_ij, v_ij>`` of votes of so many numbers"""
        n, q, _, j = (pairs := self.pairs()).shape
        return self.distance(None, pairs.new_ones(()).expand(n, q, j, pose))

    def inverse_lengths(self, pose: int, shortest: float) -> Pairs:
        """``1 / |v_ij|`` of votes of so many numbers, at most that of a vote with the squared length ``shortest``"""
        return self.squared_lengths(pose).clamp_min(shortest).rsqrt()

    def attend(self, parent: Parents, scale: float) -> tuple[Parents, Pairs]:
        """One step of attention: the parents compete by their agreement with the votes, times a scale, and mix what
        they win. Also the couplings."""
        coupling = self.compete(self.agreement(scale * parent))
        return self.mix(coupling), coupling

    def mass(self, weight: Weights) -> Float[Tensor, "n q j"]:
        """``sum_i w_ij``"""
        return self._of_each_parent(weight.sum(-2))

    def centered(self) -> tuple["BlockVotes", Parents]:
        """The same votes measured from an origin of each parent's own, and that origin.

        Gaussian routings do not care where the origin lies, but floating-point numbers do.
        """
        raise NotImplementedError

    def compete(self, logits: Pairs, *, orphan: bool = False) -> Pairs:
        """Couplings: each child's shares among all parents that see it."""
        return self.competition.share(logits, orphan)

    def compete_in_logs(self, logits: Pairs) -> Pairs:
        """The logarithms of the couplings: a share of 1e-50 is a number there."""
        return self.competition.log_share(logits)

    def split_mass(
        self, logits: Pairs | None, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Weights, Float[Tensor, "n q j 1"]]:
        """Each parent's children as shares of its mass, which sum to one, and the mass: the sum of their couplings
        times their presences, of which ``log_present`` has the logarithms. Without logits, all couplings of a child
        are equal."""
        log_coupling = self.compete_evenly().log() if logits is None else self.compete_in_logs(logits)
        return split_mass(log_coupling if log_present is None else log_coupling + log_present)

    def split_log_mass(
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        """The same with the logarithm of the mass, which does not underflow. A logit of -∞ keeps a child from a parent:
        it counts for nothing there, and one that is kept from all counts for none."""
        return split_log_mass(self.competition, logits, log_present)

    def use(
        self, presence: Float[Tensor, "n q i"], gaussian: Gaussian | None = None, *, only_sums: bool = False
    ) -> Weights:
        """What each parent wins of each child: its presence times the coupling, which follows from the distances
        from a Gaussian of each parent; without one, all couplings of a child are equal. ``only_sums`` says that the
        caller passes the result to ``mass``, ``mix`` and ``mix_squares`` and reads it nowhere else."""
        coupling = self.compete_evenly() if gaussian is None else self.compete(self.distance(*gaussian))
        return presence.unsqueeze(-1) * coupling

    def moments(self, share: Weights, *, floor: Tensor | None = None) -> tuple[Parents, Parents]:
        """Mean and variance of the votes by shares that sum to one: ``sum_i w_ij v_ij`` and ``sum_i w_ij (v_ij -
        mean_j)²``, per component; ``floor`` as for ``mix_squares``"""
        mean = self.mix(share)
        return mean, self.mix_squares(share, mean, floor=floor)

    def compete_evenly(self) -> Float[Tensor, "n q i 1"]:
        """The couplings of the first iteration: equal shares, the same for all parents."""
        pairs = self.pairs()
        return self.competition.evenly(pairs.shape, pairs)

    def there(self) -> Bool[Tensor, "q i"] | None:
        """Which children are there: those in the padding of a convolution are not; ``None`` where all are. Couplings
        of absent children are zero, so only a routing without couplings has to ask."""
        return self.competition.there(self.pairs().shape[-2])

    def pairs(self) -> Pairs:
        """A zero for each pair of child and parent, held once in memory."""
        raise NotImplementedError

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        """All votes as numbers."""
        raise NotImplementedError

    def _of_each_parent(self, quantity: Float[Tensor, "n q #j"]) -> Float[Tensor, "n q j"]:
        return quantity.expand(*quantity.shape[:2], self.pairs().shape[-1])


@runtime_checkable
class Builder(Protocol):
    """Whatever can make votes as numbers out of tensors."""

    @property
    def competition(self) -> CompetitionRule: ...

    def build(self, tensors: Sequence[Tensor]) -> Values: ...

    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents: ...

    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]: ...


class BuiltVotes(BlockVotes):
    """Votes as numbers, built when first asked for, with primitives that autograd differentiates by itself."""

    def __init__(self, builder: Builder, tensors: Sequence[Tensor], *, at_once: bool = False) -> None:
        self.builder, self.tensors = builder, tensors
        self.competition = builder.competition
        self._values: Values | None = builder.build(tensors) if at_once else None
        self._squares: tuple[Parents | None, Values, Values] | None = None  # center, values, squared deviations

    @property
    def values(self) -> Values:
        if self._values is None:
            self._values = self.builder.build(self.tensors)
        return self._values

    @values.setter
    def values(self, values: Values) -> None:
        self._values = values

    def mix(self, weight: Weights) -> Parents:
        if self._values is None and weight.shape[-1] == 1:  # one matrix product, and nothing is built
            return self.builder.mix_alike(weight.squeeze(-1), self.tensors)
        return over_children(self.values, weight)

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        return over_children(self._deviation_squares(center), weight)

    def agreement(self, parent: Parents) -> Pairs:
        return over_pose(self.values, parent)

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        distance = over_pose(self._deviation_squares(mean), precision)
        return distance if plus is None else distance + plus.unsqueeze(-2)

    def centered(self) -> tuple[BlockVotes, Parents]:
        # Any origin will do, so it is a constant: gradients pass through the votes alone.
        origin = self.values.detach().mean(-1)
        self.values = self.values - origin.unsqueeze(-1)
        return self, origin

    def compete_evenly(self) -> Float[Tensor, "n q i 1"]:
        return self.competition.evenly(self.builder.sizes(self.tensors), self.tensors[0])

    def pairs(self) -> Pairs:
        return self.tensors[0].new_zeros(()).expand(self.builder.sizes(self.tensors))

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        return rearrange(self.values, "n q j p i -> n q i j p")

    def _deviation_squares(self, center: Parents | None) -> Values:
        # A routing measures the variance and then the distances around one mean: one square serves both.
        values = self.values
        if self._squares is None or self._squares[0] is not center or self._squares[1] is not values:
            deviation = values if center is None else values - center.unsqueeze(-1)
            self._squares = center, values, deviation.square()
        return self._squares[2]


# Below, torch.bmm instead of matmul: on five axes that costs small votes more time than the product.


def over_children(values: Values, weight: Weights) -> Parents:
    """``sum_i w_ij values_ijp``"""
    n, q, j, p, i = values.shape
    # A row times a matrix is several times faster here than the matrix times a column.
    if weight.shape[-1] == 1:
        mixed = torch.bmm(weight.mT.reshape(-1, 1, i), values.reshape(-1, j * p, i).mT)
    else:
        mixed = torch.bmm(weight.mT.reshape(-1, 1, i), values.reshape(-1, p, i).mT)
    return mixed.view(n, q, j, p)


def over_pose(values: Values, parent: Parents) -> Pairs:
    """``sum_p parent_jp values_ijp``"""
    n, q, j, p, i = values.shape
    # Contiguous: rows that are expanded (the gradient of a sum) would be multiplied one by one.
    return torch.bmm(parent.contiguous().view(-1, 1, p), values.reshape(-1, p, i)).view(n, q, j, i).mT
