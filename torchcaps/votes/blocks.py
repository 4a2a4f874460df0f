"""Routing in blocks of the batch that stay in cache, with the votes made anew in the backward pass.

A block's votes exist only while the block is routed. The backward pass goes through the blocks once more: it makes the
votes again, routes again with gradients on, and adds up what comes out. So memory holds one block of votes however
large the batch is, and the arithmetic runs in cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from torchcaps.votes.built import BlockVotes
from torchcaps.votes.contest import Contest
from torchcaps.votes.tape import Workspace

Part = TypeVar("Part")

Route = Callable[..., tuple[Tensor, ...]]
"""``route(votes, *arguments) -> results``: what a routing does with votes. What belongs to examples begins with the
axes ``n q``; a route must not reach tensors in any other way than through its arguments."""


@runtime_checkable
class Source(Protocol):
    """Where votes come from: tensors in, a block of votes out."""

    @property
    def contest(self) -> Contest: ...

    def open(self, tensors: Sequence[Tensor], *, high_precision: bool) -> BlockVotes:
        """Votes whose primitives autograd differentiates, back to the tensors."""
        ...

    def open_taped(self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool) -> "Opened":
        """The same votes for one block, with the cheapest way back to the tensors that the source knows."""
        ...

    def loses_precision(self, votes: BlockVotes) -> bool:
        """Whether the block just routed has to be done again in high precision."""
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

    def release(self) -> None:
        """Hand the block's buffers on to the next block."""
        ...


@dataclass(frozen=True)
class Plan:
    """How one call is cut into blocks: which tensors go with the examples, and which are shared by all."""

    source: Source
    route: Route
    vote_batched: tuple[bool, ...]
    other_batched: tuple[bool, ...]
    present: tuple[bool, ...]  # which arguments of the route are there; the others are None
    examples: int
    block: int  # examples in a block

    @property
    def batched(self) -> tuple[bool, ...]:
        return self.vote_batched + self.other_batched

    def blocks(self) -> list[slice]:
        return [slice(start, start + self.block) for start in range(0, self.examples, self.block)]

    def split(self, tensors: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part]]:
        return tensors[: len(self.vote_batched)], tensors[len(self.vote_batched) :]

    def call(self, votes: BlockVotes, others: Sequence[Tensor]) -> tuple[Tensor, ...]:
        there = iter(others)
        return self.route(votes, *(next(there) if present else None for present in self.present))


def route_whole(plan: Plan, tensors: Sequence[Tensor], *, high_precision: bool) -> tuple[Tensor, ...]:
    """The whole batch at once, in operations that autograd, ``torch.compile`` and ``vmap`` see through."""
    vote_tensors, others = plan.split(tensors)
    if high_precision:
        others = [other.double() for other in others]
    results = plan.call(plan.source.open(vote_tensors, high_precision=high_precision), others)
    return tuple(result.to(tensors[0].dtype) for result in results)


def route_in_blocks(plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Block by block, with gradients to the first order from a recomputing backward pass and to higher orders from
    the plain computation."""
    return _InBlocks.apply(plan, *tensors)


class _InBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, *tensors: Tensor):
        ctx.plan = plan
        ctx.high_precision = []
        ctx.save_for_backward(*tensors)
        parts: list[tuple[Tensor, ...]] = []
        workspace = Workspace()
        for rows in plan.blocks():
            block = [tensor[rows] if batched else tensor for tensor, batched in zip(tensors, plan.batched, strict=True)]
            results, high_precision = _route_block(plan, block, workspace)
            parts.append(results)
            ctx.high_precision.append(high_precision)
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    @staticmethod
    def backward(ctx, *grads: Tensor):
        tensors, plan = ctx.saved_tensors, ctx.plan
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # someone will differentiate this gradient
            return None, *_plain_gradients(plan, tensors, wanted, grads, any(ctx.high_precision))
        workspace = Workspace()
        found: list[Tensor | None] = [torch.zeros_like(t) if w else None for t, w in zip(tensors, wanted, strict=True)]
        for rows, high_precision in zip(plan.blocks(), ctx.high_precision, strict=True):
            block = [
                (tensor[rows] if batched else tensor).detach().requires_grad_(want)
                for tensor, batched, want in zip(tensors, plan.batched, wanted, strict=True)
            ]
            totals = [
                total[rows] if total is not None and batched else total
                for total, batched in zip(found, plan.batched, strict=True)
            ]
            grads_here = [grad[rows] for grad in grads]
            _add_block_gradients(plan, block, grads_here, totals, workspace, high_precision=high_precision)
        return None, *found


def _route_block(plan: Plan, block: Sequence[Tensor], workspace: Workspace) -> tuple[tuple[Tensor, ...], bool]:
    vote_tensors, others = plan.split(block)
    opened = plan.source.open_taped(vote_tensors, workspace, high_precision=False)
    results = plan.call(opened.votes, others)
    opened.release()
    if not plan.source.loses_precision(opened.votes):
        return results, False
    opened = plan.source.open_taped(vote_tensors, workspace, high_precision=True)
    results = plan.call(opened.votes, [other.double() for other in others])
    return tuple(result.to(block[0].dtype) for result in results), True


def _add_block_gradients(
    plan: Plan,
    block: Sequence[Tensor],
    grads: Sequence[Tensor],
    totals: Sequence[Tensor | None],
    workspace: Workspace,
    *,
    high_precision: bool,
) -> None:
    vote_tensors, others = plan.split(block)
    vote_totals, other_totals = plan.split(totals)
    with torch.enable_grad():
        opened = plan.source.open_taped(vote_tensors, workspace, high_precision=high_precision)
        arguments = [other.double() for other in others] if high_precision else others
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
    # Aliases, so that the graph of this gradient ends at the inputs and goes on from there by autograd's own means.
    with torch.enable_grad():
        aliases = [tensor.view_as(tensor) for tensor in tensors]
        results = route_whole(plan, aliases, high_precision=high_precision)
        used = [(result, grad) for result, grad in zip(results, grads, strict=True) if result.requires_grad]
        inputs = [alias for alias, want in zip(aliases, wanted, strict=True) if want]
        outputs, grads = zip(*used, strict=True)
        there = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True, allow_unused=True))
    return [next(there) if want else None for want in wanted]
