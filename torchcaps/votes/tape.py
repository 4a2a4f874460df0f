"""Votes whose gradient is written down in small factors, for routing one block at a time.

A routing touches the votes only through four primitives, and all four have gradients of one form: for each parent, the
gradient in the votes is a sum of outer products (child × pose component), taken alone or multiplied with the votes'
deviation from a center. ``TapedVotes`` writes these small factors down during the backward pass and multiplies them out
once at the end, where plain autograd would build and add one tensor of the votes' size for every use.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.workspace import Workspace
from torchcaps.votes.built import (
    BlockVotes,
    Builder,
    BuiltVotes,
    Pairs,
    Parents,
    Values,
    Weights,
    over_children,
    over_pose,
)

# (a - b)² and 2 (a - b) g, each in one pass over the memory: the operations behind the squared error and its gradient.
_mse, _mse_backward = torch.ops.aten.mse_loss.out, torch.ops.aten.mse_loss_backward.grad_input
# Up to so many pose components, outer products one after the other beat a matrix product of all.
FEW_COMPONENTS = 4


class TapedVotes(BuiltVotes):
    """Votes whose own gradient is written down as small factors instead of being carried by autograd.

    Everything else (couplings, means, precisions) goes through autograd as usual. When the backward pass of the
    routing is done, ``gradient()`` is the gradient in the votes.
    """

    def __init__(self, builder: Builder, tensors: Sequence[Tensor], values: Values, workspace: Workspace) -> None:
        super().__init__(builder, tensors)
        self.values = values
        self.workspace = workspace
        # Every use of the votes takes the anchor along, so that autograd visits it even where nothing else asks it to.
        self.anchor = values.new_zeros((), requires_grad=True)
        self.factors: list[tuple[Weights, Parents]] = []
        self.accumulated: Values | None = None
        self._deviation: tuple[Parents | None, _Deviation, Tensor] | None = None  # center, deviation, handle

    def mix(self, weight: Weights) -> Parents:
        return _Mix.apply(weight, self.anchor, self)

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        deviation, handle = self._deviation_from(center)
        return _MixSquares.apply(weight, handle, deviation)

    def agreement(self, parent: Parents) -> Pairs:
        return _Agreement.apply(parent, self.anchor, self)

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        deviation, handle = self._deviation_from(mean)
        distance = _Distance.apply(precision, handle, deviation)
        return distance if plus is None else distance + plus.unsqueeze(-2)

    def centered(self) -> tuple[BlockVotes, Parents]:
        origin = self.values.mean(-1)
        self.values.sub_(origin.unsqueeze(-1))  # the values are this block's own
        return self, origin

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        return _Numbers.apply(self.anchor, self)

    def gradient(self) -> Values:
        """The gradient in the votes, complete once the routing's backward pass is."""
        if self.factors:
            self.accumulate(_multiply_out(self.factors, self.values, self.workspace))
        assert self.accumulated is not None
        return self.accumulated

    def release(self) -> None:
        """Hand the block's buffers on; the votes are gone then."""
        if self._deviation is not None:
            self._deviation[1].forget()
        self.workspace.give(self.values)
        if self.accumulated is not None:
            self.workspace.give(self.accumulated)
        # The graph's nodes hold the tape, so the tape must hold nothing of the graph: no collector sees such cycles.
        self._values = self._deviation = self.accumulated = None
        self.factors.clear()

    def carry_back(self, deviation: "_Deviation") -> Parents:
        """Add a deviation's part to the votes' gradient, and return the gradient in its center."""
        deviation.forget()
        part = _multiply_out(deviation.factors, self.values, self.workspace)
        deviation.factors.clear()
        deviation.multiply(part)
        toward = part.sum(-1).neg_()
        self.accumulate(part)
        return toward

    def accumulate(self, part: Values) -> None:
        """Add a part to the votes' gradient, and keep its buffer."""
        if self.accumulated is None:
            self.accumulated = part
        else:
            self.accumulated.add_(part)
            self.workspace.give(part)

    def _deviation_from(self, center: Parents | None) -> tuple["_Deviation", Tensor]:
        # A routing measures the variance and then the distances around one mean: one deviation serves both.
        if self._deviation is None or self._deviation[0] is not center:
            if self._deviation is not None:
                self._deviation[1].forget()
            deviation = _Deviation(center, self)
            # The handle stands in autograd's graph between the center and the uses of the deviations: when its turn
            # comes in the backward pass, all uses have written down their factors.
            self._deviation = center, deviation, _Deviate.apply(center, self.anchor, deviation)
        return self._deviation[1:]


class _Deviation:
    """The deviations of a block's votes from one center, and the factors of their uses."""

    def __init__(self, center: Parents | None, tape: TapedVotes) -> None:
        self.center = None if center is None else center.detach()
        self.tape = tape
        self.factors: list[tuple[Weights, Parents]] = []
        self._squares: Values | None = None

    def multiply(self, part: Values) -> None:
        """Multiply by twice the deviations, in place."""
        if self.center is None:
            part.mul_(self.tape.values).mul_(2.0)
        else:
            # Of equal shapes: MPS does not broadcast here.
            center = self.center.unsqueeze(-1).expand_as(part)
            _mse_backward(part, self.tape.values, center, 0, grad_input=part)

    def squares(self) -> Values:
        """The squared deviations, kept for the next use until they are forgotten."""
        if self._squares is None:
            values = self.tape.values
            self._squares = self.tape.workspace.take(values.shape, values)
            if self.center is None:
                torch.square(values, out=self._squares)
            else:
                _mse(values, self.center.unsqueeze(-1).expand_as(values), 0, out=self._squares)
        return self._squares

    def forget(self) -> None:
        if self._squares is not None:
            self.tape.workspace.give(self._squares)
            self._squares = None

    def note(self, pairs: Weights, parents: Parents) -> None:
        self.factors.append((pairs, parents))


def _toward(weight: Weights, values: Values, grad: Parents) -> Weights:
    """The gradient in the weights of a sum over children."""
    if weight.shape[-1] == 1:
        return (grad.flatten(2).unsqueeze(-2) @ values.flatten(2, 3)).mT
    return over_pose(values, grad)


class _Numbers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor: Tensor, tape: TapedVotes) -> Float[Tensor, "n q i j p"]:
        ctx.tape = tape
        return tape.values.permute(0, 1, 4, 2, 3).clone()  # the block's buffer is someone else's soon

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        ctx.tape.accumulate(grad.permute(0, 1, 3, 4, 2).clone(memory_format=torch.contiguous_format))
        return None, None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Weights, anchor: Tensor, tape: TapedVotes) -> Parents:
        ctx.save_for_backward(weight)
        ctx.tape = tape
        return over_children(tape.values, weight)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        (weight,) = ctx.saved_tensors
        ctx.tape.factors.append((weight, grad))
        return (_toward(weight, ctx.tape.values, grad) if ctx.needs_input_grad[0] else None), None, None


class _Agreement(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parent: Parents, anchor: Tensor, tape: TapedVotes) -> Pairs:
        ctx.save_for_backward(parent)
        ctx.tape = tape
        return over_pose(tape.values, parent)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        (parent,) = ctx.saved_tensors
        ctx.tape.factors.append((grad, parent))
        return (over_children(ctx.tape.values, grad) if ctx.needs_input_grad[0] else None), None, None


class _Deviate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, center: Parents | None, anchor: Tensor, deviation: _Deviation) -> Tensor:
        ctx.deviation = deviation
        return anchor.new_zeros(())

    @staticmethod
    def backward(ctx, *grads: Tensor):
        deviation = ctx.deviation
        toward = deviation.tape.carry_back(deviation)
        return (None if deviation.center is None else toward), None, None


class _MixSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Weights, handle: Tensor, deviation: _Deviation) -> Parents:
        ctx.save_for_backward(weight)
        ctx.deviation = deviation
        return over_children(deviation.squares(), weight)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        (weight,) = ctx.saved_tensors
        deviation = ctx.deviation
        deviation.note(weight, grad)
        toward = _toward(weight, deviation.squares(), grad) if ctx.needs_input_grad[0] else None
        return toward, grad.new_zeros(()), None


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, precision: Parents, handle: Tensor, deviation: _Deviation) -> Pairs:
        ctx.save_for_backward(precision)
        ctx.deviation = deviation
        return over_pose(deviation.squares(), precision)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        (precision,) = ctx.saved_tensors
        deviation = ctx.deviation
        deviation.note(grad, precision)
        toward = over_children(deviation.squares(), grad) if ctx.needs_input_grad[0] else None
        return toward, grad.new_zeros(()), None


def _multiply_out(factors: Sequence[tuple[Weights, Parents]], like: Values, workspace: Workspace) -> Values:
    """``sum_k pairs^k_ij parents^k_jp`` in a buffer of the workspace."""
    room = workspace.take(like.shape, like)
    if room.shape[-2] > FEW_COMPONENTS:
        torch.bmm(*_stacked(factors), out=room.flatten(0, 2))
        return room
    (pairs, parents), *others = factors
    torch.mul(parents.unsqueeze(-1), pairs.mT.unsqueeze(-2), out=room)
    for pairs, parents in others:
        room.addcmul_(parents.unsqueeze(-1), pairs.mT.unsqueeze(-2))
    return room


def _stacked(factors: Sequence[tuple[Weights, Parents]]) -> tuple[Tensor, Tensor]:
    """The factors of a sum of outer products side by side: ``(nqj, p, k)`` and ``(nqj, k, i)``."""
    pairs = torch.stack([pair.mT.expand(*parent.shape[:-1], -1) for pair, parent in factors], -2)
    parents = torch.stack([parent for _, parent in factors], -1)
    return parents.flatten(0, 2), pairs.flatten(0, 2)
