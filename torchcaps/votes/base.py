"""Votes as an operator: the children's opinions about the parents, whatever the cheapest way to ask for them."""

import copy
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.kernels.modes import in_full_precision, is_full_precision, must_be_traceable, without_autocast
from torchcaps.kernels.waiting import give_way
from torchcaps.votes.blocks import (
    Asks,
    Plan,
    Route,
    VoteSource,
    route_in_blocks,
    route_in_pieces,
    route_taped,
    route_whole,
)
from torchcaps.votes.built import BlockVotes
from torchcaps.votes.captured import refuse_captured
from torchcaps.votes.grid import ChildGrid
from torchcaps.votes.kept import keep_graph
from torchcaps.votes.limits import count_examples_at_once, keeps_closed_pairs, keeps_native_pairs
from torchcaps.votes.pairs import PairSource
from torchcaps.votes.paths import Path, choose_path
from torchcaps.votes.plain import PlainVotes
from torchcaps.votes.shared import QuadraticSource
from torchcaps.votes.sources import TensorSource


class Votes:
    """The votes ``v_ij`` of children ``i`` for parents ``j``, as an operator.

    Made by ``tensor_votes``, ``dense_votes``, ``shared_votes`` or ``convolutional_votes``; every routing function takes
    one in place of a tensor. The four primitives can be asked for directly, with shapes ``(*b, i, j)`` and ``(*b, j,
    p)``.

    Args:
        source: how a block of votes is built, and who competes.
        tensors: what the votes are made of; those that belong to examples have the leading axes ``n q``.
        batched: which of the tensors belong to examples.
        batch_shape: the axes ``*b``.
        examples: examples ``n`` that are routed one by one.
        positions: positions ``q`` that are routed together.
        children: children of one parent.
        parents: parents at one position.
        pose: numbers in a parent's pose.
        numbers: numbers held for one example while it is routed.
        child_grid: the children's grid, if they have one.
        poses: the children's poses, with the leading axes ``n q i``, if they are known.

    Example:
        >>> from torchcaps.votes import tensor_votes
        >>> tensor_votes(torch.ones(7, 3, 5)).mix(torch.full((7, 3), 1 / 3)).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        source: VoteSource,
        tensors: Sequence[Tensor],
        *,
        batched: Sequence[bool],
        batch_shape: Sequence[int],
        examples: int,
        positions: int,
        children: int,
        parents: int,
        pose: int,
        numbers: int,  # numbers held for one example while it is routed
        child_grid: ChildGrid | None = None,
        poses: Tensor | None = None,
    ) -> None:
        self._source = source
        self._tensors = tuple(tensors)
        self._batched = tuple(batched)
        self._numbers = numbers
        self._child_grid = child_grid
        self._poses = poses
        self._few: tuple[tuple[int, ...], Tensor] | None = None  # built votes, for the next step of a routing
        self.batch_shape = torch.Size(batch_shape)
        self.examples, self.positions = examples, positions
        self.children, self.parents, self.pose = children, parents, pose

    @property
    def shape(self) -> torch.Size:
        """The shape of the votes if they were built: ``(*b, i, j, p)``."""
        return torch.Size((*self.batch_shape, self.children, self.parents, self.pose))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the votes are made of."""
        return self._tensors

    @property
    def dtype(self) -> torch.dtype:
        return self._tensors[0].dtype

    @property
    def device(self) -> torch.device:
        return self._tensors[0].device

    @property
    def there(self) -> Bool[Tensor, "*b i"] | None:
        """Which children are there: those in the padding of a convolution are not, and take no part. ``None`` where all
        are."""
        there = self._source.competition.there(self.children)  # q i
        return None if there is None else there.expand(self.examples, -1, -1).reshape(*self.batch_shape, self.children)

    @property
    def child_poses(self) -> Float[Tensor, "*b i x"] | None:
        """The children's poses as the votes order the children, zero in the padding of a convolution; ``None`` where
        they are not known, as of votes that are given as a tensor."""
        if self._poses is None:
            return None
        return self._poses.reshape(*self.batch_shape, self.children, prod(self._poses.shape[3:]))

    def __repr__(self) -> str:
        return f"{type(self._source).__name__}{tuple(self.shape)}"

    def run(
        self,
        route: Route,
        *,
        per_example: Sequence[Tensor | None] = (),
        shared: Sequence[Tensor | None] = (),
        whole: bool = False,
        asks: Asks = Asks.ANYTHING,
    ) -> tuple[Tensor, ...]:
        """Route: ``route(votes, *per_example, *shared)`` over the batch, in blocks where that helps.

        Args:
            route: what to do with a block of votes (``torchcaps.votes.built.BlockVotes``); it takes every tensor as an
                argument.
            per_example: tensors that begin with ``batch_shape``.
            shared: tensors that all examples share.
            whole: asks for the batch in one piece, so that the route may keep what it sees.
            asks: what the route asks of the votes; if that is little, they need not be built.

        Returns:
            The results of the route, which begin with ``batch_shape``.
        """
        arguments = self._fit_arguments(per_example, shared) if per_example or shared else []
        tensors = [*self._tensors, *[each for each in arguments if each is not None]]
        traceable = must_be_traceable()
        if not traceable:  # a compiler differentiates what it sees, captured or not
            refuse_captured(route)
        training = torch.is_grad_enabled() and _want_gradients(tensors)
        if not traceable and self.examples > 0:
            without_votes = asks is not Asks.ANYTHING and self._need_no_votes(asks, training=training)
            summed = self._source.open_summed(self._tensors) if without_votes else None
            if summed is not None or self._are_few(training=training):
                return self._run_few(route, arguments, tensors, summed, training=training)
        only_whole = whole or asks is Asks.ONE_PRODUCT or traceable or self.examples == 0
        path = Path.PLAIN if only_whole else self.choose_path(training=training)
        source, batched = self._source, self._batched
        if path is Path.BLOCKS:
            source, own = source.arrange_for_blocks(self._tensors)
            tensors[: len(own)] = own
        elif path is Path.NATIVE:
            assert isinstance(source, PairSource)
            source = source.for_kernels()
        # Nothing of pairs is ever in memory then.
        pairless = asks is Asks.SUMS and isinstance(source, QuadraticSource) and source.wins_natively(self._tensors[0])
        plan = Plan(
            source=source,
            route=route,
            vote_batched=batched,
            other_batched=tuple([True] * _count(per_example) + [False] * _count(shared)),
            present=tuple([each is not None for each in arguments]),
            examples=self.examples,
            block=max(1, self.examples) if path is Path.PLAIN or pairless else self._count_at_once(path),
            careful=source.closed_form and self.device.type != "cpu",
        )
        if path is not Path.PLAIN:
            give_way()
        with without_autocast(self.device) if traceable else in_full_precision(self.device):
            if path is Path.PLAIN:
                # Few votes are built at once, since there is more than one use for them.
                few = not only_whole or (not traceable and self.choose_path(training=training) is Path.PLAIN)
                at_once = few and asks is not Asks.ONE_PRODUCT
                # Such a computation cannot look at its numbers and go back: closed forms are precise from the start.
                compute = partial(route_whole, plan, high_precision=source.closed_form, at_once=at_once)
                results = compute(tensors) if traceable else keep_graph(compute, tensors)
            elif path is Path.NATIVE and keeps_native_pairs(self._pairs()):
                plain = partial(route_whole, plan, high_precision=False)
                results = keep_graph(partial(route_taped, plan), tensors, plain)
            elif pairless or self._keeps():
                results = keep_graph(partial(route_in_pieces, plan), tensors)
            else:
                results = route_in_blocks(plan, tensors)
        return self._shape_results(results)

    def _run_few(
        self,
        route: Route,
        arguments: Sequence[Tensor | None],
        tensors: Sequence[Tensor],
        summed: BlockVotes | None,
        *,
        training: bool,
    ) -> tuple[Tensor, ...]:
        """The shortest way, in the fewest calls: few votes, or one sum without any."""
        if is_full_precision(self.device):
            votes = self._open_few(training=training) if summed is None else summed
            return self._shape_results(route(votes, *arguments))
        with in_full_precision(self.device):
            present = [each is not None for each in arguments]
            compute = partial(_route_few, self._source, len(self._tensors), route, present, summed is not None)
            return self._shape_results(keep_graph(compute, tensors))

    def _fit_arguments(
        self, per_example: Sequence[Tensor | None], shared: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """What a route takes: with the axes ``n q`` if it belongs to examples, and of the votes' number type."""
        begins, dtype = len(self.batch_shape), self.dtype
        fitted: list[Tensor | None] = []
        for tensor in per_example:
            if tensor is None or (begins == 1 and self.positions == 1 and tensor.shape[0] == self.examples):
                fitted.append(None if tensor is None else tensor.unsqueeze(1))  # faster than what follows
            else:
                fitted.append(tensor.reshape(self.examples, self.positions, *tensor.shape[begins:]))
        fitted.extend(shared)
        return [each if each is None or each.dtype is dtype else each.to(dtype) for each in fitted]

    def _are_few(self, *, training: bool) -> bool:
        return self.choose_path(training=training) is Path.PLAIN and self._source.builds_few(self._tensors)

    def _need_no_votes(self, asks: Asks, *, training: bool) -> bool:
        """Whether one sum takes least time without votes, and what belongs to pairs fits in memory."""
        if asks is Asks.ONE_SUM:
            registers = self._source.sums_in_registers(self._tensors)
            return keeps_native_pairs(self._pairs()) and (registers or self._are_few(training=training))
        if asks is Asks.ONE_UNIT_SUM:
            return not training and self._are_few(training=False)
        return asks is Asks.ONE_PRODUCT

    def _open_few(self, *, training: bool) -> BlockVotes:
        """Few votes, built at once for plain autograd; without gradients, once for all steps of a routing."""
        if training:
            return PlainVotes(self._source.build_few(self._tensors), self._source.competition)
        mode = (
            torch.is_inference_mode_enabled(),
            *[0 if each.is_inference() else each._version for each in self._tensors],
        )
        if self._few is None or self._few[0] != mode:
            self._few = mode, self._source.build_few(self._tensors)
        return PlainVotes(self._few[1], self._source.competition)

    def _shape_results(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if self.positions == 1 and len(self.batch_shape) == 1:
            return (results[0].squeeze(1),) if len(results) == 1 else tuple([result.squeeze(1) for result in results])
        return tuple([result.reshape(*self.batch_shape, *result.shape[2:]) for result in results])

    def choose_path(self, *, training: bool) -> Path:
        """The way that costs least at this size.

        Args:
            training: whether a backward pass follows.

        Returns:
            The path, which is the same for all routings.
        """
        numbers = self.examples * self.positions * self.children * self.parents * self.pose
        return choose_path(self._source, numbers, self._tensors, training=training)

    def _count_at_once(self, path: Path) -> int:
        pairs = self.positions * self.children * self.parents
        return count_examples_at_once(path, self.device, positions=self.positions, pairs=pairs, numbers=self._numbers)

    def _pairs(self) -> int:
        return self.examples * self.positions * self.children * self.parents

    def _keeps(self) -> bool:
        """Whether all that the backward pass needs of a closed form may stay in memory: pairs, never votes."""
        return self._source.closed_form and keeps_closed_pairs(self._pairs())

    def of_children(self, quantity: Float[Tensor, "..."] | None, name: str = "score") -> Tensor | None:
        """The score of each child as the votes order the children.

        Args:
            quantity: scores ``(*b, i)``, or of the children's grid; ``None`` where all are there.
            name: what a message calls it.

        Returns:
            Scores ``(*b, i)``, -∞ for children in the padding of a convolution; ``None`` where all children are there.
        """
        expected = (*self.batch_shape, self.children)
        there = self.there
        if quantity is None:
            if there is None:
                return None
            quantity = torch.full(expected, float("inf"), dtype=self.dtype, device=self.device)
        if tuple(quantity.shape) == expected:
            return quantity if there is None else torch.where(there, quantity, float("-inf"))
        if self._child_grid is not None and tuple(quantity.shape) == self._child_grid.shape:
            return self._child_grid.lay_out(quantity.unsqueeze(-1), padding=float("-inf")).reshape(expected)
        wanted = f"{expected}" if self._child_grid is None else f"{self._child_grid.shape} or {expected}"
        raise ValueError(f"{name} of shape {tuple(quantity.shape)} does not fit the children; expected {wanted}")

    # The primitives, one at a time, for those who write a routing of their own outside a loop of ours.
    def mix(self, weight: Float[Tensor, "*b i j"]) -> Float[Tensor, "*b j p"]:
        """``sum_i w_ij v_ij``

        Args:
            weight: a weight for each pair.

        Returns:
            A sum for each parent.
        """
        return self.run(lambda votes, weight: (votes.mix(weight),), per_example=[weight])[0]

    def mix_squares(
        self, weight: Float[Tensor, "*b i j"], center: Float[Tensor, "*b j p"] | None = None
    ) -> Float[Tensor, "*b j p"]:
        """``sum_i w_ij (v_ij - center_j)²``, component by component.

        Args:
            weight: a weight for each pair.
            center: a center for each parent; zero if left out.

        Returns:
            A sum for each parent.
        """
        return self.run(
            lambda votes, weight, center: (votes.mix_squares(weight, center),), per_example=[weight, center]
        )[0]

    def agreement(self, parent: Float[Tensor, "*b j p"]) -> Float[Tensor, "*b i j"]:
        """``<v_ij, parent_j>``

        Args:
            parent: a pose for each parent.

        Returns:
            A number for each pair.
        """
        return self.run(lambda votes, parent: (votes.agreement(parent),), per_example=[parent])[0]

    def distance(self, mean: Float[Tensor, "*b j p"], precision: Float[Tensor, "*b j p"]) -> Float[Tensor, "*b i j"]:
        """``sum_p precision_jp (v_ijp - mean_jp)²``

        Args:
            mean: a mean for each parent.
            precision: a weight for each component of each parent.

        Returns:
            A number for each pair.
        """
        return self.run(
            lambda votes, mean, precision: (votes.distance(mean, precision),), per_example=[mean, precision]
        )[0]

    def tensor(self) -> Float[Tensor, "*b i j p"]:
        """All votes as one tensor: the costly way, for looking at them and for normalizing them.

        Returns:
            The votes ``(*b, i, j, p)``.
        """
        return self.run(lambda votes: (votes.numbers(),), whole=True)[0]

    def made_of(self, tensors: Sequence[Tensor]) -> "Votes":
        """The same votes, made of other tensors.

        Args:
            tensors: tensors of the same shapes as ``tensors``.

        Returns:
            The new votes.
        """
        votes = copy.copy(self)
        votes._tensors = tuple(tensors)
        return votes

    def replaced(self, numbers: Float[Tensor, "*b i j p"]) -> "Votes":
        """Other numbers in the place of these votes: the same children and parents, the same competition.

        Args:
            numbers: votes of the same shape.

        Returns:
            The new votes.
        """
        if numbers.shape != self.shape:
            raise ValueError(f"votes of shape {tuple(numbers.shape)} cannot replace those of {tuple(self.shape)}")
        return Votes(
            TensorSource(self._source.competition),
            [numbers.reshape(self.examples, self.positions, *numbers.shape[-3:])],
            batched=[True],
            batch_shape=self.batch_shape,
            examples=self.examples,
            positions=self.positions,
            children=self.children,
            parents=self.parents,
            pose=self.pose,
            numbers=held(self.positions * self.children * self.parents, self.pose),
            child_grid=self._child_grid,
            poses=self._poses,
        )


def held(pairs: int, pose: int) -> int:
    """How many numbers built votes take while they are routed: a vote for each pair of child and parent, and however
    short that is, some logits, couplings and what their gradients need."""
    return pairs * max(pose, 4)


def _route_few(
    source: VoteSource, own: int, route: Route, present: Sequence[bool], summed: bool, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    others = iter(tensors[own:])
    votes = source.open_summed(tensors[:own]) if summed else None
    if votes is None:
        votes = PlainVotes(source.build_few(tensors[:own]), source.competition)
    return route(votes, *(next(others) if there else None for there in present))


def _want_gradients(tensors: Sequence[Tensor]) -> bool:
    for tensor in tensors:  # no generator: small layers feel it  # noqa: SIM110
        if tensor.requires_grad:
            return True
    return False


def _count(tensors: Sequence[Any]) -> int:
    return sum(tensor is not None for tensor in tensors)
