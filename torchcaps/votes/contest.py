"""Who competes for a child: the softmax over parents, in dense layers and across the positions of a grid."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Contest(Protocol):
    """Shares every child out among the parents that see it, given the logit of each pair.

    The axes are ``n`` examples, ``q`` positions of the parents' grid (1 in dense layers), ``i`` and ``j``.
    """

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        """Couplings: the softmax of the logits over all parents of a child; with ``orphan``, over one more of logit
        zero that takes its share and is then dropped."""
        ...

    def log_share(self, logits: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        """The logarithms of the couplings (without an orphan), which do not underflow."""
        ...

    def evenly(self, like: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i 1"]:
        """What ``share`` makes of equal logits (without an orphan), the same for all parents."""
        ...


class ParentsContest:
    """All parents at one position compete: dense layers, and convolutions that route each receptive field alone."""

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        # The children lie innermost in memory, so that the softmax over j runs along whole rows of them.
        logits = logits.mT
        if orphan:
            return F.pad(logits, (0, 0, 0, 1)).softmax(-2)[..., :-1, :].mT
        return logits.softmax(-2).mT

    def log_share(self, logits: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i j"]:
        return logits.mT.log_softmax(-2).mT

    def evenly(self, like: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i 1"]:
        return (like.new_ones(1, 1, 1, 1) / like.shape[-1]).expand(*like.shape[:-1], 1)


class GridTables(NamedTuple):
    """Which child positions each parent position sees, and the other way round."""

    child_of: Int[Tensor, "q k"]  # parent position, place in its kernel -> position of the child
    seen_by: Int[Tensor, "s m"]  # child position -> the (parent position, place) pairs that see it, padded with q * k
    watchers: Int[Tensor, "s"]  # how many parent positions see the child


def grid_tables(grid: tuple[int, int], kernel: int, stride: int, device: torch.device) -> GridTables:
    """The tables of a convolution without padding, from the geometry alone.

    >>> grid_tables((3, 3), 2, 1, torch.device("cpu")).watchers.reshape(3, 3)
    tensor([[1, 2, 1],
            [2, 4, 2],
            [1, 2, 1]])
    """
    counts = [(size - kernel) // stride + 1 for size in grid]
    tops, lefts = (torch.arange(count, device=device) * stride for count in counts)
    places = torch.arange(kernel, device=device)
    row = tops[:, None, None, None] + places[:, None]
    column = lefts[:, None, None] + places
    child_of = (row * grid[1] + column).reshape(counts[0] * counts[1], kernel * kernel)

    # Along one axis, the child at y is seen by the parents y // stride, y // stride - 1, … that still reach it.
    reach = torch.arange(-(-kernel // stride), device=device)
    (above, in_y, there_y), (left, in_x, there_x) = (
        _watchers(size, count, kernel, stride, reach) for size, count in zip(grid, counts, strict=True)
    )
    parent = above[:, None, :, None] * counts[1] + left[None, :, None, :]
    place = in_y[:, None, :, None] * kernel + in_x[None, :, None, :]
    there = there_y[:, None, :, None] & there_x[None, :, None, :]
    nowhere = counts[0] * counts[1] * kernel * kernel
    seen_by = torch.where(there, parent * kernel * kernel + place, nowhere).flatten(2).flatten(0, 1)
    return GridTables(child_of, seen_by, there.flatten(2).sum(-1).flatten())


def _watchers(size: int, count: int, kernel: int, stride: int, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each place on one axis: the parents that may see it, where in their kernels, and whether they do."""
    place = torch.arange(size, device=reach.device)[:, None]
    parent = place // stride - reach
    within = place - parent * stride
    return parent, within, (parent >= 0) & (parent < count) & (within < kernel)


class GridContest:
    """All parents that see a child compete for it: every type, at every position whose receptive field holds it.

    The children of a position are ordered (place in the kernel, type).
    """

    def __init__(self, tables: GridTables) -> None:
        self.tables = tables

    def share(self, logits: Float[Tensor, "n q i j"], orphan: bool) -> Float[Tensor, "n q i j"]:
        return self.log_share(logits, orphan).exp()

    def log_share(self, logits: Float[Tensor, "n q i j"], orphan: bool = False) -> Float[Tensor, "n q i j"]:
        child_of, seen_by, _ = self.tables
        logits = logits.mT
        here = logits.logsumexp(-2).unflatten(-1, (child_of.shape[1], -1)).flatten(1, 2)  # n (q k) t
        # One more row for the padding of the table: far below any logit, yet finite, so that no gradient is NaN.
        nowhere = here.new_full((), torch.finfo(here.dtype).min / 4).expand_as(here[:, :1])
        everywhere = torch.cat([here, nowhere], 1).index_select(1, seen_by.flatten())
        total = everywhere.unflatten(1, seen_by.shape).logsumexp(2)  # n s t
        if orphan:
            total = torch.logaddexp(total, torch.zeros_like(total))
        total = total.index_select(1, child_of.flatten()).unflatten(1, child_of.shape).flatten(-2)  # n q i
        return (logits - total.unsqueeze(-2)).mT

    def evenly(self, like: Float[Tensor, "n q i j"]) -> Float[Tensor, "n q i 1"]:
        child_of, _, watchers = self.tables
        parents = like.shape[-1] * watchers[child_of]  # q k
        share = (1.0 / parents.to(like.dtype)).unsqueeze(-1).expand(-1, -1, like.shape[-2] // child_of.shape[1])
        return share.flatten(-2)[None, :, :, None].expand(*like.shape[:-1], 1)
