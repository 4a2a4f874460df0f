"""Votes that are built as numbers, block by block; those that the caller has built, to begin with."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import suits_kernels
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes.built import BlockVotes, BuiltVotes, Parents, Values
from torchcaps.votes.competition import CompetitionRule
from torchcaps.votes.plain import FewValues
from torchcaps.votes.tape import TapedVotes


@dataclass(frozen=True)
class BuiltSource(ABC):
    """A source that builds its votes: ``build`` makes them, ``carry_back`` takes their gradient to what made them."""

    competition: CompetitionRule

    @property
    def closed_form(self) -> bool:
        return False

    @abstractmethod
    def build(self, tensors: Sequence[Tensor]) -> Values:
        """The votes, in operations that autograd differentiates."""

    @abstractmethod
    def build_block(self, workspace: Workspace, tensors: Sequence[Tensor]) -> Values:
        """The votes of one block in a buffer of the workspace, when nobody differentiates."""

    @abstractmethod
    def carry_back(
        self, workspace: Workspace, grad: Values, tensors: Sequence[Tensor], totals: Sequence[Tensor | None]
    ) -> None:
        """Add the gradients in the tensors to their totals; those without a total need none."""

    @abstractmethod
    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents:
        """``sum_i w_i v_ij``, a plain matrix product that needs no votes."""

    @abstractmethod
    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
        """``n, q, i, j`` of the votes made of these tensors."""

    def open(self, tensors: Sequence[Tensor], *, high_precision: bool, at_once: bool = False) -> BlockVotes:
        return BuiltVotes(self, tensors, at_once=at_once)

    def builds_few(self, tensors: Sequence[Tensor]) -> bool:
        return False

    def build_few(self, tensors: Sequence[Tensor]) -> FewValues:
        raise NotImplementedError

    def sums_in_registers(self, tensors: Sequence[Tensor]) -> bool:
        return False

    def open_summed(self, tensors: Sequence[Tensor]) -> BlockVotes | None:
        return None

    def open_taped(
        self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool
    ) -> "OpenedBuilt | OpenedPlain":
        return OpenedBuilt(self, tensors, workspace)

    def imprecise(self, votes: BlockVotes) -> list[int]:
        return []

    def arrange_for_blocks(self, tensors: Sequence[Tensor]) -> tuple["BuiltSource", Sequence[Tensor]]:
        return self, tensors


class OpenedBuilt:
    """A block of built votes in use."""

    def __init__(self, source: BuiltSource, tensors: Sequence[Tensor], workspace: Workspace) -> None:
        self.source, self.tensors, self.workspace = source, tensors, workspace
        with torch.no_grad():
            values = source.build_block(workspace, tensors)
        self.votes = TapedVotes(source, tensors, values, workspace)

    def gradients(
        self,
        results: Sequence[Tensor],
        grads: Sequence[Tensor],
        inputs: Sequence[Tensor],
        totals: Sequence[Tensor | None],
    ) -> Sequence[Tensor | None]:
        _, *found = torch.autograd.grad(results, [self.votes.anchor, *inputs], grads, allow_unused=True)
        if any(total is not None for total in totals):
            self.source.carry_back(self.workspace, self.votes.gradient(), self.tensors, totals)
        return found

    def take_notes(self) -> Sequence[object]:
        return ()

    def recall(self, notes: Sequence[object]) -> None:
        """There are none."""

    def release(self) -> None:
        self.votes.release()


@dataclass(frozen=True)
class OpenedPlain:
    """A block of votes in use whose way back to the tensors is autograd's own."""

    votes: BlockVotes
    tensors: Sequence[Tensor]

    def gradients(
        self,
        results: Sequence[Tensor],
        grads: Sequence[Tensor],
        inputs: Sequence[Tensor],
        totals: Sequence[Tensor | None],
    ) -> Sequence[Tensor | None]:
        own = [(tensor, total) for tensor, total in zip(self.tensors, totals, strict=True) if total is not None]
        found = torch.autograd.grad(results, [*(tensor for tensor, _ in own), *inputs], grads, allow_unused=True)
        for (_, total), part in zip(own, found, strict=False):
            if part is not None:
                total.add_(part)
        return found[len(own) :]

    def take_notes(self) -> Sequence[object]:
        return ()

    def recall(self, notes: Sequence[object]) -> None:
        """There are none."""

    def release(self) -> None:
        """There are no buffers to hand on."""


@dataclass(frozen=True)
class TensorSource(BuiltSource):
    """Votes that the caller has built: ``(n, q, i, j, p)``."""

    def build(self, tensors: Sequence[Tensor]) -> Values:
        return rearrange(tensors[0], "n q i j p -> n q j p i").contiguous()

    def build_block(self, workspace: Workspace, tensors: Sequence[Tensor]) -> Values:
        turned = rearrange(tensors[0], "n q i j p -> n q j p i")
        return workspace.take(turned.shape, turned).copy_(turned)

    def carry_back(
        self, workspace: Workspace, grad: Values, tensors: Sequence[Tensor], totals: Sequence[Tensor | None]
    ) -> None:
        if totals[0] is not None:
            totals[0].copy_(rearrange(grad, "n q j p i -> n q i j p"))

    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents:
        (votes,) = tensors
        return (weight.unsqueeze(-2) @ votes.flatten(-2)).squeeze(-2).unflatten(-1, votes.shape[-2:])

    def builds_few(self, tensors: Sequence[Tensor]) -> bool:
        return suits_kernels(tensors[0])

    def build_few(self, tensors: Sequence[Tensor]) -> FewValues:
        return tensors[0].transpose(2, 3)

    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
        n, q, i, j, _ = tensors[0].shape
        return n, q, i, j


def with_bias(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Poses, weights and the bias, if there is one."""
    pose, weight, *bias = tensors
    return pose, weight, bias[0] if bias else None
