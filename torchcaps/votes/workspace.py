"""Buffers that one block of votes hands on to the next."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from torchcaps.votes.built import Pairs, Parents, Values

# Up to so many pose components, outer products one after the other beat a matrix product of all.
FEW_COMPONENTS = 4


class Workspace:
    """Buffers that one block hands on to the next, so that memory stays warm."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        numbers = prod(shape)
        for place in reversed(range(len(self._free))):  # the last one given back is still in the cache
            if self._free[place].numel() >= numbers and self._free[place].dtype == like.dtype:
                return self._free.pop(place)[:numbers].view(shape)
        return like.new_empty(numbers).view(shape)

    def give(self, buffer: Tensor) -> None:
        self._free.append(buffer.view(-1))

    def outer_products(self, factors: Sequence[tuple[Pairs, Parents]], like: Values) -> Values:
        """``sum_k pairs^k_ij parents^k_jp`` in one of the buffers."""
        room = self.take(like.shape, like)
        if room.shape[-2] > FEW_COMPONENTS:
            torch.bmm(*_stacked(factors), out=room.flatten(0, 2))
            return room
        (pairs, parents), *others = factors
        torch.mul(parents.unsqueeze(-1), pairs.mT.unsqueeze(-2), out=room)
        for pairs, parents in others:
            room.addcmul_(parents.unsqueeze(-1), pairs.mT.unsqueeze(-2))
        return room


def _stacked(factors: Sequence[tuple[Pairs, Parents]]) -> tuple[Tensor, Tensor]:
    """The factors of a sum of outer products side by side: ``(nqj, p, k)`` and ``(nqj, k, i)``."""
    pairs = torch.stack([pair.mT.expand(*parent.shape[:-1], -1) for pair, parent in factors], -2)
    parents = torch.stack([parent for _, parent in factors], -1)
    return parents.flatten(0, 2), pairs.flatten(0, 2)
