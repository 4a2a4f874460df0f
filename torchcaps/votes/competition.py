"""Who competes for a child: the softmax over parents, in dense layers and across the positions of a grid."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.votes.grid import GridTables

There = Bool[Tensor, "q i"]
"""Which children of each position are there: those in the padding of a convolution are not."""


@runtime_checkable
class CompetitionRule(Protocol):
    """Shares every child out among the parents that see it, given the logit of each pair.

    The axes are ``n`` examples, ``q`` positions of the parents' grid (1 in dense layers), ``i`` and ``j``. Children
    that are not there have no share.
    """

    @property
    def tables(self) -> GridTables | None:
        """Which positions share children; ``None`` where each routes alone."""
        ...

    def there(self, children: int) -> There | None:
        """Which of so many children of each position are there; ``None`` where all are."""
        ...

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        """Couplings: the softmax of the logits over all parents of a child; with ``orphan``, over one more of logit
        zero that takes its share and is then dropped."""
        ...

    def log_share(self, logits: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        """The logarithms of the couplings (without an orphan), which do not underflow."""
        ...

    def pull_back(self, shares: Float[Tensor, "n q i j"], grad: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        """The gradient in the logits, of what ``share`` made of them and of a gradient in that."""
        ...

    def evenly(self, shape: Sequence[int], like: Tensor) -> Float[Tensor, "n q i 1"]:
        """What ``share`` makes of equal logits ``(n, q, i, j)`` (without an orphan), the same for all parents; number
        type and device are those of ``like``."""
        ...


class ParentCompetition:
    """All parents at one position compete: dense layers, and convolutions that route each receptive field alone."""

    tables = None

    def __init__(self, there: There | None = None) -> None:
        self._there = there

    def there(self, children: int) -> There | None:
        return self._there

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        shares = self._share(logits, orphan)
        return shares if self._there is None else torch.where(self._there.unsqueeze(-1), shares, 0.0)

    def _share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        # The children lie innermost in memory, so that the softmax over j runs along whole rows of them.
        logits = logits.mT
        if orphan:
            return F.pad(logits, (0, 0, 0, 1)).softmax(-2)[..., :-1, :].mT
        return logits.softmax(-2).mT

    def log_share(self, logits: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        shares = logits.mT.log_softmax(-2).mT
        return shares if self._there is None else torch.where(self._there.unsqueeze(-1), shares, _nothing(shares))

    def pull_back(self, shares: Float[Tensor, "n q i j"], grad: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        weighted = shares * grad
        return weighted - shares * weighted.sum(-1, keepdim=True)

    def evenly(self, shape: Sequence[int], like: Tensor) -> Float[Tensor, "n q i 1"]:
        *lead, parents = shape
        if type(parents) is int:
            share = like.new_full((*lead, 1), 1.0 / parents)
        else:  # a tracer has tensors for sizes
            share = (like.new_ones(1, 1, 1, 1) / parents).expand(*lead, 1)
        return share if self._there is None else share * self._there.unsqueeze(-1)


def split_mass(log_used: Float[Tensor, "*b i j"]) -> tuple[Float[Tensor, "*b i j"], Float[Tensor, "*b j 1"]]:
    """Each parent's children as shares of its mass, which sum to one, and the mass.

    In logarithms, since the mass of a parent that no child favors underflows, or the gradient of its inverse overflows,
    while its mean stays as well defined as any other.
    """
    return log_used.softmax(-2), log_used.logsumexp(-2, keepdim=True).exp().mT


def split_log_mass(
    rule: CompetitionRule, logits: Float[Tensor, "n q i j"], log_present: Float[Tensor, "n q i 1"] | None
) -> tuple[Float[Tensor, "n q i j"], Float[Tensor, "n q j 1"]]:
    """The same of couplings and presences, with the logarithm of the mass; a logit of -∞ keeps a child from a
    parent."""
    lowest = torch.finfo(logits.dtype).min
    log_used = rule.log_share(logits.clamp_min(lowest / 16))
    log_used = log_used if log_present is None else log_used + log_present
    # Far below absent children, yet finite: a parent that all are kept from has a mean as well.
    log_used = log_used.masked_fill(logits == float("-inf"), lowest / 2)
    return log_used.softmax(-2), log_used.logsumexp(-2, keepdim=True).mT


def _nothing(like: Tensor) -> float:
    """The logarithm of no share at all: far below any other, yet finite, so that no gradient is NaN."""
    return torch.finfo(like.dtype).min / 4


class GridCompetition:
    """All parents that see a child compete for it: every type, at every position whose receptive field holds it.

    The children of a position are ordered (place in the kernel, type).
    """

    def __init__(self, tables: GridTables) -> None:
        self.tables = tables

    def there(self, children: int) -> There | None:
        return self.tables.there_of_types(children // self.tables.child_of.shape[1])

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        return self.log_share(logits, orphan).exp()

    def log_share(self, logits: Float[Tensor, "n q i j"], orphan: bool = False) -> Float[Tensor, "n q i j"]:
        child_of, seen_by, _, there = self.tables
        logits = logits.mT
        here = logits.logsumexp(-2).unflatten(-1, (child_of.shape[1], -1)).flatten(1, 2)  # n (q k) t
        # One more row for the padding of the table.
        nowhere = here.new_full((), _nothing(here)).expand_as(here[:, :1])
        everywhere = torch.cat([here, nowhere], 1).index_select(1, seen_by.flatten())
        total = everywhere.unflatten(1, seen_by.shape).logsumexp(2)  # n s t
        if orphan:
            total = torch.logaddexp(total, torch.zeros_like(total))
        if there is not None:  # and one for the padding of the grid, of which nobody has a share
            total = torch.cat([total, -nowhere], 1)
        total = total.index_select(1, child_of.flatten()).unflatten(1, child_of.shape).flatten(-2)  # n q i
        return (logits - total.unsqueeze(-2)).mT

    def pull_back(self, shares: Float[Tensor, "n q i j"], grad: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        child_of, seen_by, _, there = self.tables
        weighted = shares * grad
        here = weighted.sum(-1).unflatten(-1, (child_of.shape[1], -1)).flatten(1, 2)  # n (q k) t
        everywhere = torch.cat([here, torch.zeros_like(here[:, :1])], 1).index_select(1, seen_by.flatten())
        total = everywhere.unflatten(1, seen_by.shape).sum(2)  # n s t
        if there is not None:
            total = torch.cat([total, torch.zeros_like(total[:, :1])], 1)
        total = total.index_select(1, child_of.flatten()).unflatten(1, child_of.shape).flatten(-2)  # n q i
        return weighted - shares * total.unsqueeze(-1)

    def evenly(self, shape: Sequence[int], like: Tensor) -> Float[Tensor, "n q i 1"]:
        child_of, _, watchers, there = self.tables
        watchers = watchers if there is None else F.pad(watchers, (0, 1), value=1)
        parents = shape[-1] * watchers[child_of]  # q k
        shares = 1.0 / parents.to(like.dtype) if there is None else there / parents.to(like.dtype)
        share = shares.unsqueeze(-1).expand(-1, -1, shape[-2] // child_of.shape[1])
        return share.flatten(-2)[None, :, :, None].expand(*shape[:-1], 1)
