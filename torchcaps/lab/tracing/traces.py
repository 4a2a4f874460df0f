"""What the routings of a network do with its inputs: couplings and votes of every layer and iteration."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import log

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.lab.tracing.networks import HookedNet, describe, evaluating, require_capsules
from torchcaps.layers import CapsuleLayer, ConvCapsules, DenseCapsules
from torchcaps.models.base import device_of
from torchcaps.models.capsule_net import Mask
from torchcaps.routing import Iteration, Trace
from torchcaps.votes import Votes
from torchcaps.votes.grid import GridTables, grid_tables


@dataclass
class VotesTrace(Trace):
    """A trace that keeps the votes of every iteration as well."""

    votes: list[Votes] = field(default_factory=list)

    def record(self, votes: Votes, coupling: Tensor, pose: Tensor, score: Tensor | None) -> None:
        super().record(votes, coupling, pose, score)
        self.votes.append(votes)


@dataclass(frozen=True)
class LayerTrace:
    """One layer's routing. Children and parents are sets ``(b, n, d)`` or maps ``(b, row, column, n, d)``; where they
    are counted through, it is position by position."""

    number: int  # 1 for the layer on the primary capsules
    layer: CapsuleLayer
    children: Capsules
    parents: Capsules
    iterations: tuple[Iteration, ...]
    votes: tuple[Votes, ...]  # of each iteration: where layers are routed together, children change in between
    tables: GridTables | None = None  # of convolutions: who sees whom
    type_first: bool = False  # whether the votes go through a map type by type

    @property
    def routing(self) -> str:
        """What the routing is called."""
        return self.layer.routing.title

    @property
    def couples(self) -> bool:
        """Whether the routing has couplings; where not, their place is taken by shares of pairwise agreement."""
        return self.layer.routing.couples

    @property
    def presence(self) -> Float[Tensor, "b children"]:
        """The presence of each child."""
        return self.children.presence.flatten(1)

    def couplings(self, iteration: int = -1) -> Float[Tensor, "b q i j"]:
        """The couplings at every position ``q`` of the parents' grid (one where there is no grid), in the order of the
        votes."""
        if not self.couples:
            shares = self.layer.routing.share_agreement(self.votes[iteration])
            return shares.reshape(len(self.children.pose), -1, *shares.shape[-2:])
        coupling = self.iterations[iteration].coupling
        return coupling.reshape(len(self.children.pose), -1, *coupling.shape[-2:])

    def shares(self, above: Float[Tensor, "b parents k"], iteration: int = -1) -> Float[Tensor, "b children k"]:
        """Hand down to the children what belongs to the parents, by the couplings: rows that sum to one still do.

        Where each receptive field is routed alone, a child's share is the mean over the fields that it is in.
        """
        coupling = self.couplings(iteration)
        positions = coupling.shape[1]
        handed = torch.einsum("bqij,bqjk->bqik", coupling, rearrange(above, "b (q j) k -> b q j k", q=positions))
        if self.tables is None:
            return self.in_order(handed[:, 0])
        handed = rearrange(handed, "b q (place t) k -> b (q place) t k", place=self.tables.child_of.shape[1])
        total = _add_to_children(handed, self.tables)
        if self._alone:
            total = total / self.tables.watchers.clamp_min(1)[:, None, None].to(total.dtype)
        return total.flatten(1, 2)

    def sent(self, mass: Float[Tensor, "b children"], iteration: int = -1) -> Float[Tensor, "b q i j"]:
        """What each child sends to each parent of what it has, in the order of the votes."""
        seen = self.as_votes_see(mass)
        if self._alone and self.tables is not None:  # a child of several fields gives each an equal part
            watchers = F.pad(self.tables.watchers, (0, 1))[self.tables.child_of].clamp_min(1).to(seen.dtype)
            seen = (seen.unflatten(2, (watchers.shape[1], -1)) / watchers[:, :, None]).flatten(2)
        return seen.unsqueeze(-1) * self.couplings(iteration)

    def in_order(self, quantity: Float[Tensor, "b i k"]) -> Float[Tensor, "b i k"]:
        """A quantity of the children in the order of the votes, position by position."""
        if not self.type_first:
            return quantity
        _, rows, columns, _, _ = self.children.pose.shape
        return rearrange(quantity, "b (n y x) k -> b (y x n) k", y=rows, x=columns)

    def entropy(self, iteration: int = -1) -> Float[Tensor, "b"]:
        """How evenly the children are shared out, as a part of the most that is possible: 1 where all parents get the
        same, 0 where each child has one parent. The mean over the children, weighted by their presence."""
        coupling = self.couplings(iteration)
        orphan = self.layer.routing.orphan
        parents = coupling.shape[-1]
        surprise = torch.special.entr(coupling).sum(-1)  # b q i
        if self.tables is None or self._alone:
            if orphan:
                surprise = surprise + torch.special.entr((1.0 - coupling.sum(-1)).clamp_min(0.0))
            most = torch.full_like(surprise, log(max(parents + orphan, 1)))
            presence = self.as_votes_see(self.presence)
            return _weighted_mean(surprise, most, presence)
        tables, watchers = self.tables, self.tables.watchers

        def gathered(quantity: Tensor) -> Tensor:
            apart = rearrange(quantity, "b q (place t) -> b (q place) t", place=tables.child_of.shape[1])
            return _add_to_children(apart, tables)

        surprise = gathered(surprise)
        if orphan:
            surprise = surprise + torch.special.entr((1.0 - gathered(coupling.sum(-1))).clamp_min(0.0))
        most = (watchers * parents + orphan).clamp_min(1).to(surprise.dtype).log()[None, :, None].expand_as(surprise)
        return _weighted_mean(surprise.flatten(1), most.flatten(1), self.presence)

    @property
    def _alone(self) -> bool:
        return isinstance(self.layer, ConvCapsules) and self.layer.competition == "field"

    def as_votes_see(self, presence: Float[Tensor, "b children"]) -> Float[Tensor, "b q i"]:
        """A quantity of each child in the order of the votes, at every position of the parents' grid."""
        if self.tables is not None:
            apart = F.pad(presence.unflatten(1, (len(self.tables.watchers), -1)), (0, 0, 0, 1))  # the padding's is zero
            spread = apart.index_select(1, self.tables.child_of.flatten()).unflatten(1, self.tables.child_of.shape)
            return spread.flatten(2)
        if self.type_first:
            _, rows, columns, _, _ = self.children.pose.shape
            presence = rearrange(presence, "b (y x n) -> b (n y x)", y=rows, x=columns)
        return presence.unsqueeze(1)


@torch.no_grad()
def trace(model: nn.Module, inputs: Tensor, mask: Mask | None = None) -> list[LayerTrace]:
    """Run a network and keep what the routing of every layer does, from the primary capsules to the classes. Of a
    module that is no ``CapsuleNet``, these are its capsule layers in the order in which they are called.

    >>> import torchcaps as tc
    >>> net = tc.models.create("sabour2017_mnist", stem_channels=4, primary_caps=2, decoder=False)
    >>> [layer] = trace(net, torch.rand(2, 1, 28, 28))
    >>> layer.routing, len(layer.iterations), layer.couplings().shape
    ('dynamic', 3, torch.Size([2, 1, 72, 10]))
    """
    return trace_with_logits(model, inputs, mask)[0]


@torch.no_grad()
def trace_with_logits(
    model: nn.Module, inputs: Tensor, mask: Mask | None = None
) -> tuple[list[LayerTrace], Float[Tensor, "b k"]]:
    """The same, and a logit for each of the last capsules."""
    net = require_capsules(model)
    inputs, mask = inputs.to(device_of(model)), None if mask is None else mask.to(device_of(model))
    with evaluating(net):
        if isinstance(net, HookedNet):
            return _trace_calls(net, inputs, mask)
        for number, layer in enumerate(net.layers, 1):
            if not isinstance(layer, CapsuleLayer):
                raise ValueError(
                    f"layer {number} is a {type(layer).__name__} of your own, whose routing cannot be seen"
                )
        kept = [VotesTrace() for _ in net.layers]
        stages = net.stages(inputs, mask, traces=kept)
        logits = net.head(stages[-1])
    found = zip(net.layers, stages[:-1], stages[1:], kept, strict=True)
    return [_layer_trace(number, *each, net.type_first) for number, each in enumerate(found, 1)], logits


def _trace_calls(net: HookedNet, inputs: Tensor, mask: Tensor | None) -> tuple[list[LayerTrace], Tensor]:
    kept: list[VotesTrace] = []

    def new_trace(_: CapsuleLayer) -> VotesTrace:
        kept.append(VotesTrace())
        return kept[-1]

    calls, output = net.watch(inputs, mask, new_trace)
    found = zip(calls, kept, strict=True)
    layers = [
        _layer_trace(number, call.layer, call.children, call.parents, trace, call.type_first)
        for number, (call, trace) in enumerate(found, 1)
    ]
    return layers, net.class_logits(output, calls[-1].parents)


def _layer_trace(
    number: int, layer: nn.Module, children: Capsules, parents: Capsules, kept: VotesTrace, type_first: bool
) -> LayerTrace:
    assert isinstance(layer, CapsuleLayer)
    if not kept.iterations:
        raise ValueError(
            f"layer {number}'s {type(layer.routing).__name__} records nothing in the trace that it is given"
        )
    tables = None
    if isinstance(layer, ConvCapsules):
        grid = (children.pose.shape[1], children.pose.shape[2])
        tables = grid_tables(grid, layer.window, children.pose.device)
    flattened = isinstance(layer, DenseCapsules) and children.pose.ndim == 5
    return LayerTrace(
        number,
        layer,
        children,
        parents,
        tuple(kept.iterations),
        tuple(kept.votes),
        tables,
        flattened and type_first,
    )


@contextmanager
def iterating(model: nn.Module, num_iters: int) -> Iterator[None]:
    """With another number of routing iterations in every layer, for as long as the context lasts.

    EM routing's inverse temperatures go on as the authors' schedule does, in every layer to its own end; other
    schedules of more than one number end with their last one.
    """
    if num_iters < 1:
        raise ValueError(f"routing needs at least one iteration; got num_iters={num_iters}")
    net = require_capsules(model)
    routings = [layer.routing for layer in net.modules() if isinstance(layer, CapsuleLayer)]
    routings = [routing for routing in routings if routing.iterates]
    if not routings:
        raise ValueError(f"{describe(model)} has no routing that iterates")
    together = net.num_iters
    with ExitStack() as stack:
        for routing in routings:
            stack.enter_context(routing.iterating(num_iters))
        try:
            net.num_iters = None if together is None else num_iters
            yield
        finally:
            net.num_iters = together


def _add_to_children(quantity: Float[Tensor, "b pairs *x"], tables: GridTables) -> Float[Tensor, "b s *x"]:
    """What belongs to the (position, place) pairs of a convolution, added up for each position of the children; what
    belongs to the padding is dropped."""
    empty = quantity.new_zeros(len(quantity), len(tables.watchers) + 1, *quantity.shape[2:])
    return empty.index_add(1, tables.child_of.flatten(), quantity)[:, :-1]


def _weighted_mean(
    surprise: Float[Tensor, "b *children"], most: Float[Tensor, "b *children"], weight: Float[Tensor, "b *children"]
) -> Float[Tensor, "b"]:
    contested = most > 0  # a child that only one parent sees has no choice
    weight = weight * contested
    part = torch.where(contested, surprise / torch.where(contested, most, 1.0), 0.0)
    return F.relu((weight * part).flatten(1).sum(-1) / weight.flatten(1).sum(-1).clamp_min(1e-30)).clamp_max(1.0)
