"""Votes by a weight for each pair of child and parent: dense layers, convolutions, class capsules over a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import suits_kernels
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes.built import BuiltVotes, Parents, Values
from torchcaps.votes.native import NativeVotes, Note
from torchcaps.votes.plain import FewValues, build_few
from torchcaps.votes.sources import BuiltSource, OpenedPlain, with_bias
from torchcaps.votes.summed import SummedVotes, fill_vectors, sum_plainly

# A gradient of weights that is a sum of so few terms is added up term by term, in one operation each; of more, column
# by column. For the path in blocks alone; measured by `python -m benchmarks.fit_limits`.
FEW_TERMS = 64


@dataclass(frozen=True)
class PairSource(BuiltSource):
    """Votes by a weight for each pair of child and parent: ``V_ijch = sum_d W_ijdh pose_icd + B_ijch``.

    The tensors are the poses ``(n, q, i, c, d)``, the weights ``(t, j, d, h)`` and, if there is one, the bias
    ``(j or 1, c, h, i or t)``. Children are ``g`` groups of ``t`` types, ``i = g · t``: the groups share the weights
    (class capsules over a grid); a dense layer has one group.
    """

    def build(self, tensors: Sequence[Tensor]) -> Values:
        pose, weight, bias = with_bias(tensors)
        (n, q, i, c, d), (t, j, _, h) = pose.shape, weight.shape
        g = i // t
        # One product for each type of child. No einsum and no einops here: votes may be few, and their calls many. No
        # sizes of -1 either: there may be no example at all.
        turned = pose.reshape(n, q, g, t, c, d).permute(3, 0, 1, 2, 4, 5).reshape(t, n * q * g * c, d)
        votes = torch.bmm(turned, weight.transpose(1, 2).reshape(t, d, j * h))
        values = votes.view(t, n, q, g, c, j, h).permute(1, 2, 5, 4, 6, 3, 0).reshape(n, q, j, c * h, i)
        return values if bias is None else values + _for_each_child(bias, i).flatten(1, 2)

    def builds_few(self, tensors: Sequence[Tensor]) -> bool:
        return suits_kernels(tensors[0])

    def build_few(self, tensors: Sequence[Tensor]) -> FewValues:
        return build_few(tensors)

    def sums_in_registers(self, tensors: Sequence[Tensor]) -> bool:
        *_, d, h = tensors[1].shape
        return fill_vectors(d, h) == 16 and suits_kernels(tensors[0])

    def open_summed(self, tensors: Sequence[Tensor]) -> BuiltVotes | None:
        # Biases are a further product.
        return SummedVotes(self, tensors) if len(tensors) == 2 and suits_kernels(tensors[0]) else None

    def build_block(self, workspace: Workspace, tensors: Sequence[Tensor]) -> Values:
        raise NotImplementedError  # arrange_for_blocks has another source do it

    def carry_back(
        self, workspace: Workspace, grad: Values, tensors: Sequence[Tensor], totals: Sequence[Tensor | None]
    ) -> None:
        raise NotImplementedError

    def arrange_for_blocks(self, tensors: Sequence[Tensor]) -> tuple[BuiltSource, Sequence[Tensor]]:
        pose, weight, *bias = tensors
        return PairBlockSource(self.competition), [pose, weight.permute(1, 2, 3, 0).contiguous(), *bias]

    def for_kernels(self) -> "NativePairSource":
        """The same votes by the native kernels."""
        return NativePairSource(self.competition)

    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents:
        pose, matrix, bias = with_bias(tensors)
        total = sum_plainly(pose, matrix, weight.unsqueeze(-1))
        if bias is None:
            return total
        (_, _, i, c, _), (_, j, _, h) = pose.shape, matrix.shape
        every = _for_each_child(bias, i).expand(j, c, h, i)
        return total + rearrange(weight @ rearrange(every, "j c h i -> i (j c h)"), "n q (j p) -> n q j p", j=j)

    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
        pose, weight, *_ = tensors
        return pose.shape[0], pose.shape[1], pose.shape[2], weight.shape[1]


@dataclass(frozen=True)
class NativePairSource(PairSource):
    """The same votes by the native kernels, except where they are differentiated twice."""

    def open_taped(self, tensors: Sequence[Tensor], workspace: Workspace, *, high_precision: bool) -> OpenedPlain:
        return OpenedNative(NativeVotes(self, tensors, workspace), tensors)


@dataclass(frozen=True)
class OpenedNative(OpenedPlain):
    """A block of such votes in use."""

    votes: NativeVotes

    def gradients(
        self,
        results: Sequence[Tensor],
        grads: Sequence[Tensor],
        inputs: Sequence[Tensor],
        totals: Sequence[Tensor | None],
    ) -> Sequence[Tensor | None]:
        self.votes.tape.totals = totals
        return super().gradients(results, grads, inputs, totals)

    def take_notes(self) -> Sequence[Note]:
        return self.votes.tape.notes

    def recall(self, notes: Sequence[object]) -> None:
        self.votes.tape.recalled = cast("list[Note]", list(notes))


@dataclass(frozen=True)
class PairBlockSource(BuiltSource):
    """The same votes block by block in PyTorch's operations, from weights with the children innermost,
    ``(j, d, h, t)``."""

    def build(self, tensors: Sequence[Tensor]) -> Values:
        pose, weight, bias = with_bias(tensors)
        turned = _turned(pose, weight.shape[-1]).unsqueeze(3)  # d n q 1 c 1 g t
        aligned = rearrange(weight, "j d h t -> d j 1 h 1 t")
        values = turned[0] * aligned[0]
        for column in range(1, len(turned)):
            values = values + turned[column] * aligned[column]
        return _merged(values if bias is None else values + _grouped(bias, weight.shape[-1]))

    def build_block(self, workspace: Workspace, tensors: Sequence[Tensor]) -> Values:
        pose, weight, bias = with_bias(tensors)
        turned = _turned(pose, weight.shape[-1])
        columns, n, q, c, _, g, t = turned.shape
        values = workspace.take((n, q, len(weight), c, weight.shape[2], g, t), pose)
        turned, aligned = turned.unsqueeze(3), rearrange(weight, "j d h t -> d j 1 h 1 t")
        torch.mul(turned[0], aligned[0], out=values)
        for column in range(1, columns):
            values.addcmul_(turned[column], aligned[column])
        return _merged(values if bias is None else values.add_(_grouped(bias, t)))

    def carry_back(
        self, workspace: Workspace, grad: Values, tensors: Sequence[Tensor], totals: Sequence[Tensor | None]
    ) -> None:
        pose, weight, *_ = tensors
        to_pose, to_weight, *to_bias = totals
        types = weight.shape[-1]
        turned = _turned(pose, types)
        grad = rearrange(grad, "n q j (c h) (g t) -> n q j c h g t", c=pose.shape[-2], t=types)
        if to_pose is not None:
            _add_pose_gradient(workspace, grad, weight, to_pose)
        if to_weight is not None:
            _add_weight_gradient(workspace, grad, turned, to_weight)
        if to_bias and to_bias[0] is not None:
            to_bias[0].add_(_bias_gradient(grad, to_bias[0]))

    def mix_alike(self, weight: Float[Tensor, "n q i"], tensors: Sequence[Tensor]) -> Parents:
        pose, matrix, bias = with_bias(tensors)
        j, _, h, t = matrix.shape
        grouped = rearrange(pose * weight[..., None, None], "n q (g t) c d -> n q c g (d t)", t=t).sum(3)
        mixed = grouped @ rearrange(matrix, "j d h t -> (d t) (j h)")
        mixed = rearrange(mixed, "n q c (j h) -> n q j (c h)", j=j)
        if bias is None:
            return mixed
        rows, children = pose.shape[-2], pose.shape[2]
        every = bias.repeat(1, 1, 1, children // bias.shape[-1]).expand(j, rows, h, children)
        return mixed + rearrange(weight @ rearrange(every, "j c h i -> i (j c h)"), "n q (j p) -> n q j p", j=j)

    def sizes(self, tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
        pose, weight, *_ = tensors
        return pose.shape[0], pose.shape[1], pose.shape[2], weight.shape[0]


def _turned(pose: Float[Tensor, "n q i c d"], types: int) -> Float[Tensor, "d n q c 1 g t"]:
    """The poses with the children innermost, their columns in front."""
    return rearrange(pose, "n q (g t) c d -> d n q c 1 g t", t=types).contiguous()


def _for_each_child(bias: Float[Tensor, "j c h t"], children: int) -> Float[Tensor, "j c h i"]:
    """The bias of every child; groups may share theirs."""
    return bias if bias.shape[-1] == children else bias.repeat(1, 1, 1, children // bias.shape[-1])


def _grouped(bias: Float[Tensor, "j c h i"], types: int) -> Float[Tensor, "j c h g t"]:
    return rearrange(bias, "j c h (g t) -> j c h g t", t=types)


def _merged(values: Float[Tensor, "n q j c h g t"]) -> Values:
    return values.flatten(-2).flatten(-3, -2)


# Sums over several axes that do not lie side by side are slow, so each of the following takes one axis at a time.


def _add_pose_gradient(workspace: Workspace, grad: Tensor, weight: Tensor, total: Float[Tensor, "n q i c d"]) -> None:
    products = workspace.take(grad.shape, grad)
    matrix = rearrange(weight, "j d h t -> d j 1 h 1 t")
    for column in range(len(matrix)):
        part = torch.mul(grad, matrix[column], out=products).sum(2).sum(3)  # n q c g t
        total[..., column] += rearrange(part, "n q c g t -> n q (g t) c")
    workspace.give(products)


def _add_weight_gradient(workspace: Workspace, grad: Tensor, turned: Tensor, total: Float[Tensor, "j d h t"]) -> None:
    n, q, _, c, _, g, _ = grad.shape
    if g == 1 and n * q * c <= FEW_TERMS:  # add them up where they belong
        for example, position, row in product(range(n), range(q), range(c)):
            total.addcmul_(
                grad[example, position, :, row].squeeze(-2).unsqueeze(1), turned[:, example, position, row, :, 0]
            )
        return
    products = workspace.take(grad.shape, grad)
    for column in range(len(turned)):
        part = torch.mul(grad, turned[column].unsqueeze(2), out=products).flatten(0, 1).sum(0).sum(1)  # j h g t
        total[:, column] += part.sum(2)
    workspace.give(products)


def _bias_gradient(grad: Tensor, bias: Tensor) -> Tensor:
    full = grad.flatten(0, 1).sum(0)  # j c h g t
    if bias.shape[-1] == full.shape[-1]:  # one bias for each type, shared by the groups
        full = full.sum(3, keepdim=True)
    return full.flatten(3).sum_to_size(bias.shape)
