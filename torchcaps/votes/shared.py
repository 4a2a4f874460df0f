"""Votes by weights that all children share, never built where that is cheaper.

With one weight for all children, ``v_ij = W_j pose_i + B_j``, everything a routing asks for is linear or quadratic in
the child's pose. With the features ``φ(pose) = (products pose_cd pose_ce for d ≤ e, the pose_cd)`` a distance is one
inner product ``φ_i · θ_j`` and the moments of the votes follow from the moments of the features, ``sum_i w_ij φ_i``,
by a little algebra for each parent. See docs/heinsen.md for the derivation.

The poses are measured from their mean. Where a variance is still so small next to the moments that it is the difference
of (votes in a tight cluster far from the mean, or weights that cancel a spread of the poses) that too many digits would
be lost, the example is routed again in double precision. On accelerators nobody looks at the numbers, which would make
the host wait: closed forms work in double precision from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import take_kernels
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes.blocks import in_high_precision
from torchcaps.votes.built import BlockVotes, BuiltVotes, Gaussian, Pairs, Parents, Values, Weights
from torchcaps.votes.closed import Features, Poses, find_features, win_moments
from torchcaps.votes.competition import CompetitionRule
from torchcaps.votes.plain import FewValues
from torchcaps.votes.sources import BuiltSource, OpenedPlain, with_bias

# How many times larger the second moment may be than the variance taken from it. Single precision carries 24 bits: a
# ratio of 2¹⁰ leaves 14 of them, 6e-5, to the worst variance of the worst parent. What is promised of a routing's
# results, 1e-5 of their largest number, is kept with room to spare: its errors average out over children and
# components (docs/heinsen.md has the measurements).
LARGEST_MOMENT_RATIO = 1024.0


@dataclass(frozen=True)
class SharedBuiltSource(BuiltSource):
    """Votes by shared weights, built: for wide poses with narrow votes. Tensors: pose ``(n, q, i, c, d)``, weight
    ``(j, d, h)`` and maybe a bias ``(j, c, h)``."""

    def build(self, tensors: Sequence[Tensor]) -> Values:
        pose, weight, bias = with_bias(tensors)
        values = rearrange(weight, "j d h -> (j h) d") @ rearrange(pose, "n q i c d -> n q c d i")
        values = rearrange(values, "n q c (j h) i -> n q j (c h) i", j=weight.shape[0])
        return values if bias is None else values + rearrange(bias, "j c h -> j (c h) 1")

    def build_block(self, workspace: Workspace, tensors: Sequence[Tensor]) -> Values:
        pose, weight, bias = with_bias(tensors)
        (n, q, i, c, _), (j, _, h) = pose.shape, weight.shape
        values = workspace.take((n, q, j, c * h, i), pose)
        matrix = rearrange(weight, "j d h -> (j h) d")
        for row in range(c):
            # Rows of the pose are apart by h components: one product for each leaves no transposing to do.
            part = (matrix @ pose[:, :, :, row].mT).view(n, q, j, h, i)
            values[:, :, :, row * h : (row + 1) * h].copy_(part)
        return values if bias is None else values.add_(rearrange(bias, "j c h -> j (c h) 1"))

    def carry_back(
        self, workspace: Workspace, grad: Values, tensors: Sequence[Tensor], totals: Sequence[Tensor | None]
    ) -> None:
        pose, weight, *_ = tensors
        to_pose, to_weight, *to_bias = totals
        j, _, h = weight.shape
        matrix = rearrange(weight, "j d h -> (j h) d")
        for row in range(pose.shape[-2]):
            part = grad[:, :, :, row * h : (row + 1) * h].flatten(2, 3)  # n q (j h) i
            if to_pose is not None:
                to_pose[..., row, :] += part.mT @ matrix
            if to_weight is not None:
                product = (part @ pose[..., row, :]).sum((0, 1))
                to_weight.add_(rearrange(product, "(j h) d -> j d h", j=j))
        if to_bias and to_bias[0] is not None:
            to_bias[0].add_(rearrange(grad.sum(-1).sum((0, 1)), "j (c h) -> j c h", h=h))

    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents:
        pose, matrix, bias = with_bias(tensors)
        mixed = torch.einsum("nqi,nqicd->nqcd", weight, pose)
        votes = torch.einsum("nqcd,jdh->nqjch", mixed, matrix)
        if bias is not None:
            votes = votes + weight.sum(-1)[..., None, None, None] * bias
        return votes.flatten(-2)

    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
        pose, weight, *_ = tensors
        return pose.shape[0], pose.shape[1], pose.shape[2], weight.shape[0]


@dataclass(frozen=True)
class QuadraticSource:
    """Votes by shared weights, in closed form. Tensors as for ``SharedBuiltSource``."""

    competition: CompetitionRule

    @property
    def closed_form(self) -> bool:
        return True

    def open(self, tensors: Sequence[Tensor], *, high_precision: bool, at_once: bool = False) -> BlockVotes:
        if high_precision:
            tensors = [in_high_precision(tensor) for tensor in tensors]
            if tensors[0].dtype != torch.float64:
                return BuiltVotes(SharedBuiltSource(self.competition), tensors)
        return QuadraticVotes.of_poses(*with_bias(tensors), self)

    def open_taped(self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool) -> "OpenedPlain":
        return OpenedPlain(self.open(tensors, high_precision=high_precision), tensors)

    def builds_few(self, tensors: Sequence[Tensor]) -> bool:
        return False

    def build_few(self, tensors: Sequence[Tensor]) -> FewValues:
        raise NotImplementedError

    def sums_in_registers(self, tensors: Sequence[Tensor]) -> bool:
        return False

    def open_summed(self, tensors: Sequence[Tensor]) -> None:
        return None

    def arrange_for_blocks(self, tensors: Sequence[Tensor]) -> tuple["QuadraticSource", Sequence[Tensor]]:
        return self, tensors

    def wins_natively(self, pose: Poses) -> bool:
        """Whether what parents win of the children comes from the native kernel."""
        alone = self.competition.tables is None and self.competition.there(pose.shape[2]) is None
        return alone and take_kernels(pose)

    def imprecise(self, votes: BlockVotes) -> list[int]:
        if not isinstance(votes, QuadraticVotes) or votes.moment_ratio.dtype == torch.float64:
            return []
        # A ratio that is not a number does not compare, and asks for the careful way too.
        return (~(votes.moment_ratio <= LARGEST_MOMENT_RATIO)).nonzero().flatten().tolist()


class QuadraticVotes(BlockVotes):
    """``v_ij = W_j (pose_i - origin) + offset_j`` as an operator on the features of the centered poses: the poses
    themselves, their products, and a one."""

    def __init__(
        self,
        pose: Poses,
        weight: Float[Tensor, "j d h"],
        offset: Parents | None,
        source: QuadraticSource,
        moment_ratio: Float[Tensor, "n"],
    ) -> None:
        self.pose, self.linear, self.rows = pose, pose.shape[-1] * pose.shape[-2], pose.shape[-2]
        self.weight, self.offset, self.source, self.competition = weight, offset, source, source.competition
        self.moment_ratio = moment_ratio
        self._features: Features | None = None
        self._moments: tuple[Weights, Tensor] | None = None

    @classmethod
    def of_poses(cls, pose: Poses, weight: Tensor, bias: Tensor | None, source: QuadraticSource) -> "QuadraticVotes":
        # Any origin gives the same votes, so it is a constant to autograd.
        origin = pose.detach().mean(2, keepdim=True)
        offset = torch.einsum("nqcd,jdh->nqjch", origin.squeeze(2), weight)
        offset = (offset if bias is None else offset + bias).flatten(-2)
        ratio = pose.new_ones(pose.shape[0])  # len() would fix the batch in exported programs
        return cls(pose - origin, weight, offset, source, ratio)

    @property
    def features(self) -> Features:
        if self._features is None:
            self._features = find_features(self.pose)
        return self._features

    def use(
        self, presence: Float[Tensor, "n q i"], gaussian: Gaussian | None = None, *, only_sums: bool = False
    ) -> Weights:
        if not only_sums or not self.source.wins_natively(self.pose):
            return super().use(presence, gaussian)
        theta = None if gaussian is None else self._theta_of(*gaussian)
        moments = win_moments(self.pose, presence, theta)
        moments = moments / self.weight.shape[0] if theta is None else moments
        # Their moments are all that will be asked for: whoever reads the weights themselves shall notice.
        used = presence.new_full((), float("nan")).expand(*presence.shape, moments.shape[2])
        self._moments = used, moments
        return used

    def mix(self, weight: Weights) -> Parents:
        mixed = self._votes_of(self._moments_of(weight)[..., : self.linear])
        return mixed if self.offset is None else mixed + self.offset * self.mass(weight).unsqueeze(-1)

    def mass(self, weight: Weights) -> Float[Tensor, "n q j"]:
        return self._of_each_parent(self._moments_of(weight)[..., -1])

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        # A difference of large numbers, but of few: in double precision it costs nothing and adds no rounding.
        moments = in_high_precision(self._moments_of(weight))
        mass = moments[..., -1:]
        # A parent without children has no mean; zero mass then stands in its place and multiplies with zero. Where the
        # mass is so small that the gradient of its inverse overflows, so do the moments.
        mean = moments[..., : self.linear] / torch.where(mass > torch.finfo(mass.dtype).tiny ** 0.75, mass, 1.0)
        second = moments[..., self.linear : -1]
        spread = second - self._products(mean) * mass
        squares = self._squares_of(spread)
        if weight.dtype != torch.float64:
            seen = (part.detach().to(weight.dtype) for part in (second, squares, mass))
            self._watch(*seen, floor=floor, coarse=coarse)
        total = squares.clamp_min(0.0) + mass * (self._votes_of(mean) - self._local(center)).square()
        return total.to(weight.dtype)

    def agreement(self, parent: Parents) -> Pairs:
        matrix = rearrange(parent, "n q j (c h) -> n q j c h", c=self.rows)
        theta = torch.einsum("nqjch,jdh->nqjcd", matrix, self.weight).flatten(-2)
        agreement = (theta @ self.features[:, :, : self.linear]).mT
        return agreement if self.offset is None else agreement + (self.offset * parent).sum(-1).unsqueeze(-2)

    def distance(self, mean: Parents | None, precision: Parents, plus: Tensor | None = None) -> Pairs:
        # A distance of zero may come out a rounding below it.
        return (self._theta_of(mean, precision, plus) @ self.features).mT

    def _theta_of(
        self, mean: Parents | None, precision: Parents, plus: Tensor | None = None
    ) -> Float[Tensor, "n q j f"]:
        """What the features are multiplied with to be distances."""
        mean = self._local(mean)
        precise = rearrange(precision, "n q j (c h) -> n q j c h", c=self.rows)
        matrix = rearrange(mean.expand_as(precision), "n q j (c h) -> n q j c h", c=self.rows)
        linear = -2.0 * torch.einsum("nqjch,nqjch,jdh->nqjcd", precise, matrix, self.weight)
        first, second = self._triangle()
        outer = self.weight.index_select(1, first) * self.weight.index_select(1, second)  # j (d ≤ e) h
        twice = torch.where(first == second, 1.0, 2.0).to(outer.dtype)
        quadratic = torch.einsum("nqjch,jfh,f->nqjcf", precise, outer, twice)
        constant = (precision * mean.square()).sum(-1)
        constant = constant if plus is None else constant + plus
        return torch.cat([linear.flatten(-2), quadratic.flatten(-2), constant.unsqueeze(-1)], -1)

    def centered(self) -> tuple["QuadraticVotes", Parents]:
        assert self.offset is not None
        offset, self.offset = self.offset, None
        return self, offset

    def pairs(self) -> Pairs:
        return self.pose.new_zeros(()).expand(*self.pose.shape[:3], self.weight.shape[0])

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        votes = torch.einsum("nqicd,jdh->nqijch", self.pose, self.weight).flatten(-2)
        return votes if self.offset is None else votes + self.offset.unsqueeze(2)

    def _triangle(self) -> tuple[Tensor, Tensor]:
        columns = self.weight.shape[1]
        first, second = torch.triu_indices(columns, columns, device=self.weight.device)
        return first, second

    def _moments_of(self, weight: Weights) -> Float[Tensor, "n q #j f"]:
        # A routing takes the mean and then the variance with one set of weights: one product serves both.
        if self._moments is None or self._moments[0] is not weight:
            self._moments = weight, weight.mT @ self.features.mT
        return self._moments[1]

    def _votes_of(self, poses: Float[Tensor, "n q #j cd"]) -> Parents:
        matrix = rearrange(self._for_each_parent(poses), "n q j (c d) -> n q j c d", c=self.rows)
        return torch.einsum("nqjcd,jdh->nqjch", matrix, self.weight.to(poses.dtype)).flatten(-2)

    def _products(self, poses: Float[Tensor, "n q #j cd"]) -> Float[Tensor, "n q #j f"]:
        matrix = rearrange(poses, "n q j (c d) -> n q j c d", c=self.rows)
        first, second = self._triangle()
        return (matrix.index_select(-1, first) * matrix.index_select(-1, second)).flatten(-2)

    def _squares_of(self, products: Float[Tensor, "n q #j f"], weight: Tensor | None = None) -> Parents:
        weight = (self.weight if weight is None else weight).to(products.dtype)
        matrix = rearrange(self._for_each_parent(products), "n q j (c f) -> n q j c f", c=self.rows)
        first, second = self._triangle()
        outer = weight.index_select(1, first) * weight.index_select(1, second)
        twice = torch.where(first == second, 1.0, 2.0).to(outer.dtype)
        return torch.einsum("nqjcf,jfh,f->nqjch", matrix, outer, twice).flatten(-2)

    def _for_each_parent(self, quantity: Float[Tensor, "n q #j x"]) -> Float[Tensor, "n q j x"]:
        # Not left to einsum: an exported one does not broadcast in onnxruntime.
        return quantity.expand(-1, -1, self.weight.shape[0], -1)

    def _local(self, place: Parents | None) -> Tensor:
        """A place measured from the origin of the centered votes."""
        if self.offset is None:
            return self.pose.new_zeros(()) if place is None else place
        return -self.offset if place is None else place - self.offset

    def _watch(self, moments: Tensor, spread: Parents, mass: Tensor, floor: Tensor | None, coarse: bool) -> None:
        """Remember each example's worst ratio of what a variance is the difference of to the variance itself."""
        second = self._squares_of(moments.abs(), self.weight.detach().abs())
        resolved = spread if floor is None else spread + floor
        if coarse:
            per_mass = resolved / mass.clamp_min(torch.finfo(mass.dtype).tiny)
            resolved = per_mass.flatten(1).amax(1)[:, None, None, None] * mass
        ratio = torch.where(second > 0, second / resolved.clamp_min(torch.finfo(second.dtype).tiny), 1.0)
        self.moment_ratio = torch.maximum(self.moment_ratio, ratio.flatten(1).amax(1))
