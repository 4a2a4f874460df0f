"""Routing in blocks of the batch that stay in cache, with the votes made anew in the backward pass.

A block's votes exist only while the block is routed. The backward pass goes through the blocks once more: it makes the
votes again, routes again with gradients on, and adds up what comes out. So memory holds one block of votes however
large the batch is, and the arithmetic runs in cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from torchcaps.kernels.modes import are_batched, in_full_precision
from torchcaps.kernels.workspace import Workspace, borrow_workspace
from torchcaps.votes.built import BlockVotes
from torchcaps.votes.competition import CompetitionRule
from torchcaps.votes.plain import FewValues

Part = TypeVar("Part", Tensor, Tensor | None)

Route = Callable[..., tuple[Tensor, ...]]
"""``route(votes, *arguments) -> results``: what a routing does with votes. What belongs to examples begins with the
axes ``n q``; a route must not reach tensors in any other way than through its arguments."""


class Asks(Enum):
    """What a route asks of the votes. The less it is, the less has to be made of them.

    ``ANYTHING`` builds few votes and asks many as often as it likes. ``SUMS`` asks for nothing of pairs, only for sums
    over them (``BlockVotes.use``). ``ONE_SUM`` asks for one ``mix`` and nothing else: few votes are not even built.
    ``ONE_PRODUCT`` is such a sum where all parents have the same weights, a matrix product of the whole batch: no votes
    are built, however many. ``ONE_UNIT_SUM`` asks for one ``mix_units``: without gradients, few votes are not built.
    """

    ANYTHING = "anything"
    SUMS = "sums"
    ONE_SUM = "one sum"
    ONE_PRODUCT = "one product"
    ONE_UNIT_SUM = "one unit sum"


@runtime_checkable
class VoteSource(Protocol):
    """Where votes come from: tensors in, a block of votes out."""

    @property
    def competition(self) -> CompetitionRule: ...

    @property
    def closed_form(self) -> bool:
        """Whether the votes are never built."""
        ...

    def open(self, tensors: Sequence[Tensor], *, high_precision: bool, at_once: bool = False) -> BlockVotes:
        """Votes whose primitives autograd differentiates, back to the tensors; ``at_once``: built right away, since
        they are few and more than one primitive will be asked for."""
        ...

    def builds_few(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the source has a way of the fewest calls, for few votes, in a call that nobody traces."""
        ...

    def build_few(self, tensors: Sequence[Tensor]) -> FewValues:
        """The same votes where they are few, in operations that autograd differentiates."""
        ...

    def sums_in_registers(self, tensors: Sequence[Tensor]) -> bool:
        """Whether ``open_summed`` has a way whose blocks of vote weights fill the registers: it is faster then than any
        other, however many votes there are."""
        ...

    def open_summed(self, tensors: Sequence[Tensor]) -> BlockVotes | None:
        """The same votes where only one sum is asked for, in a call that nobody traces; ``None`` where the source has
        no way of its own for it."""
        ...

    def arrange_for_blocks(self, tensors: Sequence[Tensor]) -> tuple["VoteSource", Sequence[Tensor]]:
        """The source and the tensors in the memory order that blocks like best, in operations that autograd
        differentiates."""
        ...

    def open_taped(self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool) -> "Opened":
        """The same votes for one block, with the cheapest way back to the tensors that the source knows."""
        ...

    def imprecise(self, votes: BlockVotes) -> list[int]:
        """Which examples of the block just routed have to be done again in high precision. The answer makes the host
        wait for the device."""
        ...


@runtime_checkable
class Opened(Protocol):
    """A block of votes in use."""

    @property
    def votes(self) -> BlockVotes: ...

    def gradients(
        self,
        results: Sequence[Tensor],
        grads: Sequence[Tensor],
        inputs: Sequence[Tensor],
        totals: Sequence[Tensor | None],
    ) -> Sequence[Tensor | None]:
        """Gradients in the other inputs of the routing; those in the source's tensors are added to their totals."""
        ...

    def take_notes(self) -> Sequence[object]:
        """What the forward pass may leave to the backward pass: small results that take long to make."""
        ...

    def recall(self, notes: Sequence[object]) -> None:
        """Use the notes of the forward pass, which is about to be gone through once more."""
        ...

    def release(self) -> None:
        """Hand the block's buffers on to the next block."""
        ...


@dataclass(frozen=True)
class Plan:
    """How one call is cut into blocks: which tensors go with the examples, and which are shared by all."""

    source: VoteSource
    route: Route
    vote_batched: tuple[bool, ...]
    other_batched: tuple[bool, ...]
    present: tuple[bool, ...]  # which arguments of the route are there; the others are None
    examples: int
    block: int  # examples in a block
    careful: bool = False  # in high precision from the start, so that nobody has to look at the numbers

    @property
    def batched(self) -> tuple[bool, ...]:
        return self.vote_batched + self.other_batched

    def blocks(self) -> list[slice]:
        return [slice(start, start + self.block) for start in range(0, self.examples, self.block)]

    def cut(self, tensors: Sequence[Part], rows: slice) -> list[Part]:
        """The tensors of one block; those that all share stay whole."""
        return [
            tensor[rows] if batched and isinstance(tensor, Tensor) else tensor
            for tensor, batched in zip(tensors, self.batched, strict=True)
        ]

    def split(self, tensors: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part]]:
        return tensors[: len(self.vote_batched)], tensors[len(self.vote_batched) :]

    def call(self, votes: BlockVotes, others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        there = iter(others)
        return self.route(votes, *(next(there) if present else None for present in self.present))


def has_double(device: torch.device) -> bool:
    """Whether the device computes in double precision; elsewhere closed forms make way for built votes."""
    return device.type != "mps"


def in_high_precision(tensor: Tensor) -> Tensor:
    """The tensor in double precision, on devices that have it."""
    return tensor.double() if has_double(tensor.device) else tensor


def route_whole(
    plan: Plan, tensors: Sequence[Tensor], *, high_precision: bool, at_once: bool = False
) -> tuple[Tensor, ...]:
    """The whole batch at once, in operations that autograd, ``torch.compile`` and ``vmap`` see through."""
    vote_tensors, others = plan.split(tensors)
    if high_precision:
        others = [in_high_precision(other) for other in others]
    votes = plan.source.open(vote_tensors, high_precision=high_precision, at_once=at_once)
    results = plan.call(votes, others)
    if not high_precision:
        return results
    return tuple(result.to(tensors[0].dtype) for result in results)


def route_in_blocks(plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Block by block, with gradients to the first order from a recomputing backward pass and to higher orders from
    the plain computation."""
    return _InBlocks.apply(plan, *tensors)


def route_taped(plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The whole batch at once by the source's cheapest way, keeping what its backward pass needs."""
    vote_tensors, others = plan.split(tensors)
    with borrow_workspace() as workspace:
        return plan.call(plan.source.open_taped(vote_tensors, workspace, high_precision=False).votes, others)


def route_in_pieces(plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Piece by piece like ``route_in_blocks``, but keeping what the backward pass needs instead of making it anew: for
    sources that keep little."""
    pieces = [
        tensor.split(plan.block) if batched else [tensor] * len(plan.blocks())
        for tensor, batched in zip(tensors, plan.batched, strict=True)
    ]
    done = [_route_kept(plan, piece) for piece in zip(*pieces, strict=True)]
    return _join(done)


def _join(done: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The results of all blocks; those of one are not copied."""
    return done[0] if len(done) == 1 else tuple(torch.cat(part) for part in zip(*done, strict=True))


def _route_kept(plan: Plan, piece: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if plan.careful:
        return route_whole(plan, piece, high_precision=True)
    vote_tensors, others = plan.split(piece)
    votes = plan.source.open(vote_tensors, high_precision=False)
    results = plan.call(votes, others)
    again = plan.source.imprecise(votes)
    if not again:
        return results
    rows = torch.tensor(again, device=piece[0].device)
    chosen = [tensor[rows] if batched else tensor for tensor, batched in zip(piece, plan.batched, strict=True)]
    redone = route_whole(plan, chosen, high_precision=True)
    return tuple(result.index_copy(0, rows, part) for result, part in zip(results, redone, strict=True))


class _InBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, *tensors: Tensor):
        ctx.plan = plan
        ctx.save_for_backward(*tensors)
        with borrow_workspace() as workspace:
            done = [_route_block(plan, plan.cut(tensors, rows), workspace) for rows in plan.blocks()]
        ctx.high_precision = [high_precision for _, high_precision, _ in done]
        ctx.notes = [notes for *_, notes in done]
        return _join([results for results, *_ in done])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        tensors, plan = ctx.saved_tensors, ctx.plan
        wanted = ctx.needs_input_grad[1:]
        with in_full_precision(tensors[0].device):
            # Someone will differentiate this gradient, or takes many at once.
            if torch.is_grad_enabled() or are_batched(grads):
                return None, *_plain_gradients(plan, tensors, wanted, grads, any(ctx.high_precision))
            return None, *_gradients_in_blocks(plan, tensors, wanted, grads, ctx.high_precision, ctx.notes)


def _gradients_in_blocks(
    plan: Plan,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    grads: Sequence[Tensor],
    high_precision: Sequence[bool],
    notes: Sequence[Sequence[object]],
) -> list[Tensor | None]:
    totals = [torch.zeros_like(tensor) if want else None for tensor, want in zip(tensors, wanted, strict=True)]
    with borrow_workspace() as workspace:
        for rows, high, noted in zip(plan.blocks(), high_precision, notes, strict=True):
            cut = zip(plan.cut(tensors, rows), wanted, strict=True)
            block = [part.detach().requires_grad_(want) for part, want in cut]
            grads_here = [grad[rows] for grad in grads]
            totals_here = plan.cut(totals, rows)
            _add_block_gradients(plan, block, grads_here, totals_here, workspace, noted, high_precision=high)
    return totals


def _route_block(
    plan: Plan, block: Sequence[Tensor], workspace: Workspace
) -> tuple[tuple[Tensor, ...], bool, Sequence[object]]:
    """The results of a block, whether they took high precision, and notes for the backward pass."""
    vote_tensors, others = plan.split(block)
    if not plan.careful:
        opened = plan.source.open_taped(vote_tensors, workspace, high_precision=False)
        results = plan.call(opened.votes, others)
        opened.release()
        if not plan.source.imprecise(opened.votes):
            return results, False, opened.take_notes()
    opened = plan.source.open_taped(vote_tensors, workspace, high_precision=True)
    results = plan.call(opened.votes, [in_high_precision(other) for other in others])
    return tuple(result.to(block[0].dtype) for result in results), True, opened.take_notes()


def _add_block_gradients(
    plan: Plan,
    block: Sequence[Tensor],
    grads: Sequence[Tensor],
    totals: Sequence[Tensor | None],
    workspace: Workspace,
    notes: Sequence[object],
    *,
    high_precision: bool,
) -> None:
    vote_tensors, others = plan.split(block)
    vote_totals, other_totals = plan.split(totals)
    with torch.enable_grad():
        opened = plan.source.open_taped(vote_tensors, workspace, high_precision=high_precision)
        opened.recall(notes)
        arguments = [in_high_precision(other) for other in others] if high_precision else others
        results = plan.call(opened.votes, arguments)
        used = [(result.to(g.dtype), g) for result, g in zip(results, grads, strict=True) if result.requires_grad]
    if used:
        outputs, grads = zip(*used, strict=True)
        parts = opened.gradients(outputs, grads, [other for other in others if other.requires_grad], vote_totals)
        for total, part in zip((total for total in other_totals if total is not None), parts, strict=True):
            if part is not None:
                total.add_(part)
    opened.release()


def _plain_gradients(
    plan: Plan, tensors: Sequence[Tensor], wanted: Sequence[bool], grads: Sequence[Tensor], high_precision: bool
) -> list[Tensor | None]:
    again = torch.is_grad_enabled()
    # Aliases, so that the graph of this gradient ends at the inputs and goes on from there by autograd's own means.
    with torch.enable_grad():
        aliases = [tensor.view_as(tensor) for tensor in tensors]
        results = route_whole(plan, aliases, high_precision=high_precision)
        used = [(result, grad) for result, grad in zip(results, grads, strict=True) if result.requires_grad]
        inputs = [alias for alias, want in zip(aliases, wanted, strict=True) if want]
        outputs, grads = zip(*used, strict=True)
        there = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=again, allow_unused=True))
    return [next(there) if want else None for want in wanted]
