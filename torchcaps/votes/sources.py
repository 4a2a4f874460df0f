"""The kinds of votes that are built as numbers, block by block: given ones, and those of a weight for each pair."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.votes.built import BlockVotes, BuiltVotes, Parents, TapedVotes, Values, Workspace
from torchcaps.votes.contest import Contest


@dataclass(frozen=True)
class BuiltSource(ABC):
    """A source that builds its votes: ``build`` makes them, ``carry_back`` takes their gradient to what made them."""

    contest: Contest

    @abstractmethod
    def build(self, *tensors: Tensor) -> Values:
        """The votes, in operations that autograd differentiates."""

    def build_block(self, workspace: Workspace, *tensors: Tensor) -> Values:
        """The votes of one block, by whatever means are fastest when nobody differentiates."""
        values = self.build(*tensors)
        return workspace.take(values.shape, values).copy_(values)

    def carry_back(self, workspace: Workspace, grad: Values, *tensors: Tensor) -> list[Tensor | None]:
        """Gradients in the tensors that require them."""
        with torch.enable_grad():
            values = self.build(*tensors)
        found = iter(torch.autograd.grad(values, [t for t in tensors if t.requires_grad], grad))
        return [next(found) if t.requires_grad else None for t in tensors]

    @abstractmethod
    def mix_alike(self, weight: Float[Tensor, "n q i"], *tensors: Tensor) -> Parents:
        """``sum_i w_i v_ij``, a plain matrix product that needs no votes."""

    @abstractmethod
    def sizes(self, *tensors: Tensor) -> tuple[int, int, int, int]:
        """``n, q, i, j`` of the votes made of these tensors."""

    def open(self, tensors: Sequence[Tensor], *, high_precision: bool) -> BlockVotes:
        return BuiltVotes(self, tensors)

    def open_taped(self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool) -> "OpenedBuilt":
        return OpenedBuilt(self, tensors, workspace)

    def loses_precision(self, votes: BlockVotes) -> bool:
        return False


class OpenedBuilt:
    """A block of built votes in use."""

    def __init__(self, source: BuiltSource, tensors: Sequence[Tensor], workspace: Workspace) -> None:
        self.source, self.tensors, self.workspace = source, tensors, workspace
        with torch.no_grad():
            values = source.build_block(workspace, *tensors)
        self.votes = TapedVotes(source, tensors, values, workspace)

    def gradients(
        self, results: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        _, *found = torch.autograd.grad(results, [self.votes.anchor, *inputs], grads, allow_unused=True)
        if not any(tensor.requires_grad for tensor in self.tensors):
            return [None] * len(self.tensors), found
        return self.source.carry_back(self.workspace, self.votes.gradient(), *self.tensors), found

    def release(self) -> None:
        self.votes.release()


@dataclass(frozen=True)
class TensorSource(BuiltSource):
    """Votes that the caller has built: ``(n, q, i, j, p)``."""

    def build(self, votes: Float[Tensor, "n q i j p"]) -> Values:
        return rearrange(votes, "n q i j p -> n q j p i").contiguous()

    def build_block(self, workspace: Workspace, votes: Tensor) -> Values:
        turned = rearrange(votes, "n q i j p -> n q j p i")
        return workspace.take(turned.shape, votes).copy_(turned)

    def carry_back(self, workspace: Workspace, grad: Values, votes: Tensor) -> list[Tensor | None]:
        return [rearrange(grad, "n q j p i -> n q i j p")]

    def mix_alike(self, weight: Float[Tensor, "n q i"], votes: Tensor) -> Parents:
        return (weight.unsqueeze(-2) @ votes.flatten(-2)).squeeze(-2).unflatten(-1, votes.shape[-2:])

    def sizes(self, votes: Tensor) -> tuple[int, int, int, int]:
        n, q, i, j, _ = votes.shape
        return n, q, i, j


@dataclass(frozen=True)
class PairSource(BuiltSource):
    """Votes by a weight for each pair of child and parent: ``V_ijch = sum_d W_ijdh pose_icd + B_ijch``.

    The tensors are the poses ``(n, q, i, c, d)``, the weights ``(j, d, h, t)`` and, if there is one, the bias
    ``(j or 1, c, h, i or t)``. Children are ``g`` groups of ``t`` types, ``i = g · t``: the groups share the weights
    (class capsules over a grid); a dense layer has one group.
    """

    def build(self, pose: Tensor, weight: Tensor, bias: Tensor | None = None) -> Values:
        turned, weight, bias = _aligned(pose, weight, bias)
        values = sum((turned[d] * weight[d] for d in range(1, len(turned))), turned[0] * weight[0])
        return _merged(values if bias is None else values + bias)

    def build_block(
        self, workspace: Workspace, pose: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> Values:
        turned, weight, bias = _aligned(pose, weight, bias)
        values = workspace.take(torch.broadcast_shapes(turned[0].shape, weight[0].shape), pose)
        torch.mul(turned[0], weight[0], out=values)
        for d in range(1, len(turned)):
            values.addcmul_(turned[d], weight[d])
        return _merged(values if bias is None else values.add_(bias))

    def carry_back(
        self, workspace: Workspace, grad: Values, pose: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> list[Tensor | None]:
        rows, types = pose.shape[-2], weight.shape[-1]
        with torch.no_grad():
            turned, aligned, _ = _aligned(pose, weight, None)
            grad = rearrange(grad, "n q j (c h) (g t) -> n q j c h g t", c=rows, t=types)
            found: list[Tensor | None] = [None, None]
            if pose.requires_grad:
                found[0] = _pose_gradient(workspace, grad, aligned)
            if weight.requires_grad:
                found[1] = _weight_gradient(workspace, grad, turned)
            if bias is not None:
                found.append(_bias_gradient(grad, bias) if bias.requires_grad else None)
        return found

    def mix_alike(
        self, weight: Float[Tensor, "n q i"], pose: Tensor, matrix: Tensor, bias: Tensor | None = None
    ) -> Parents:
        j, _, h, t = matrix.shape
        grouped = rearrange(pose * weight[..., None, None], "n q (g t) c d -> n q c g (d t)", t=t).sum(3)
        mixed = grouped @ rearrange(matrix, "j d h t -> (d t) (j h)")
        mixed = rearrange(mixed, "n q c (j h) -> n q j (c h)", j=j)
        if bias is None:
            return mixed
        rows, children = pose.shape[-2], pose.shape[2]
        every = bias.repeat(1, 1, 1, children // bias.shape[-1]).expand(j, rows, h, children)
        return mixed + rearrange(weight @ rearrange(every, "j c h i -> i (j c h)"), "n q (j p) -> n q j p", j=j)

    def sizes(self, pose: Tensor, matrix: Tensor, bias: Tensor | None = None) -> tuple[int, int, int, int]:
        return pose.shape[0], pose.shape[1], pose.shape[2], matrix.shape[0]


def _aligned(pose: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Poses, weights and bias with the axes of ``n q j c h g t``, the sum's ``d`` in front where there is one."""
    types = weight.shape[-1]
    turned = rearrange(pose, "n q (g t) c d -> d n q 1 c 1 g t", t=types).contiguous()
    weight = rearrange(weight, "j d h t -> d j 1 h 1 t")
    if bias is not None:
        bias = rearrange(bias, "j c h (g t) -> j c h g t", t=types)
    return turned, weight, bias


def _merged(values: Float[Tensor, "n q j c h g t"]) -> Values:
    return values.flatten(-2).flatten(-3, -2)


# Sums over several axes that do not lie side by side are slow, so each of the following takes one axis at a time.


def _pose_gradient(workspace: Workspace, grad: Tensor, weight: Tensor) -> Tensor:
    products = workspace.take(grad.shape, grad)
    parts = [torch.mul(grad, weight[d], out=products).sum(2).sum(3) for d in range(len(weight))]
    workspace.give(products)
    return rearrange(torch.stack(parts, -1), "n q c g t d -> n q (g t) c d")


def _weight_gradient(workspace: Workspace, grad: Tensor, turned: Tensor) -> Tensor:
    n, q, j, c, h, g, t = grad.shape
    if n * q * c <= 64:  # few terms: add them up where they belong
        total = grad.new_zeros(len(turned), j, h, g, t)
        for example, position, row in product(range(n), range(q), range(c)):
            total.addcmul_(grad[example, position, :, row], turned[:, example, position, 0, row, 0, None, None])
    else:
        products = workspace.take(grad.shape, grad)
        parts = [torch.mul(grad, turned[d], out=products).flatten(0, 1).sum(0).sum(1) for d in range(len(turned))]
        workspace.give(products)
        total = torch.stack(parts)
    return rearrange(total.sum(3), "d j h t -> j d h t")


def _bias_gradient(grad: Tensor, bias: Tensor) -> Tensor:
    full = grad.flatten(0, 1).sum(0)  # j c h g t
    if bias.shape[-1] == full.shape[-1]:  # one bias for each type, shared by the groups
        full = full.sum(3)
    return full.flatten(3).sum_to_size(bias.shape)
