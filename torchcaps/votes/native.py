"""Votes by a weight for each pair, made in registers by the native kernels whenever a primitive asks for them.

There is no tensor of votes. The four primitives are two kernels, sums over the children and sums over the pose, and
each of them is the gradient of the other. The gradient in the votes themselves is a sum of outer products
(docs/fast.md): the backward pass writes the factors down, and one more kernel takes them to poses and weights.
"""

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p, pointer

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels.library import KernelJob, Sizes, pack, run_kernel
from torchcaps.kernels.workspace import Workspace
from torchcaps.votes.built import BlockVotes, Builder, Pairs, Parents, Weights
from torchcaps.votes.costs import NUMBERS_PER_THREAD
from torchcaps.votes.shares import NativeCompetition

# (weights of pairs, linear part, quadratic part, its center)
Factor = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
Sums = tuple[Parents, Parents | None]
Note = tuple[Sums, int]  # and how often they were changed in place: someone may have got them as results


def count_threads(numbers: int) -> int:
    """Threads for votes of so many numbers: each must have as much to do as it costs to start one."""
    return max(1, min(torch.get_num_threads(), numbers // NUMBERS_PER_THREAD))


class Tape:
    """What the kernels need of the votes, and the factors of the votes' gradient. It holds nothing of autograd's graph,
    whose nodes hold it."""

    def __init__(self, tensors: Sequence[Tensor], workspace: Workspace) -> None:
        pose, weight, *bias = (tensor.detach() for tensor in tensors)
        n, q, i, c, d = pose.shape
        t, j, _, h = weight.shape
        self.shape, self.pose_size = (n, q, i, j), c * h
        self.pose_shape, self.weight_shape = pose.shape, weight.shape
        self.bias_shape = bias[0].shape if bias else None
        self.origin: Tensor | None = None
        self.factors: list[Factor] = []
        self.notes: list[Note] = []  # sums of the forward pass, in the order of the calls
        self.recalled: list[Note] = []
        # Where the gradients of the tensors are added up over the blocks, if they are.
        self.totals: Sequence[Tensor | None] = [None] * len(tensors)
        threads = count_threads(n * q * i * j * c * h)
        weights = workspace.make_once(
            (weight.data_ptr(), weight.shape, weight.stride()), lambda: pack(weight.contiguous(), 1, t, threads)
        )
        self.packed = [pack(pose.contiguous(), i // t, t, threads, n * q), weights]
        self.bias_groups = 0
        if bias:  # j or 1, c, h, i or t -> i or t, j, c, h
            turned = bias[0].expand(j, -1, -1, -1).permute(3, 0, 1, 2).contiguous()
            self.bias_groups = len(turned) // t
            self.packed.append(pack(turned, self.bias_groups, t, threads))
        self.sizes = Sizes(n * q, i // t, t, j, c, d, h, self.bias_groups, threads)
        self._job = KernelJob(pointer(self.sizes), *(part.data_ptr() for part in self.packed))

    def empty(self, *shape: int) -> Tensor:
        """Room for numbers of the votes' type."""
        return self.packed[0].new_empty(shape)

    def sum(self, weight: Weights, center: Parents | None, *, squares: bool, moments: bool = False) -> Sums:
        """``sum_i w_ij (v_ij - center_j)``, and if wanted the same of the squares; as ``moments`` the mean, and the
        squares around it."""
        n, q, _, j = self.shape
        first = self.empty(n, q, j, self.pose_size)
        second = torch.empty_like(first) if squares else None
        self._run(
            "sums", columns=weight.shape[-1], moments=int(moments), pairs=weight.mT.contiguous(),
            center=_packed(center), first=first, second=second,
        )  # fmt: skip
        return first, second

    def recall(self, compute: Callable[[], Sums]) -> Sums:
        """The sums of the forward pass where it is gone through once more: they are small, and take long to make."""
        if self.recalled:
            sums, version = self.recalled.pop(0)
            if _version(sums) == version:
                return _alias(sums)
        sums = compute()
        if not sums[0].is_inference():
            self.notes.append((_alias(sums), _version(sums)))
        return sums

    def dot(
        self, linear: Parents | None, square: Parents | None, center: Parents | None, plus: Tensor | None = None
    ) -> Pairs:
        """``sum_p linear_jp (v - center) + square_jp (v - center)²``, plus a number for each parent."""
        n, q, i, j = self.shape
        out = self.empty(n, q, j, i)
        linear, square, center, plus = map(_packed, (linear, square, center, plus))
        self._run("dots", linear=linear, square=square, center=center, plus=plus, out=out)
        return out.mT

    def pull_sum(self, factor: Factor, *, of_weight: bool, of_votes: bool) -> Weights | None:
        """The gradient in the weights of pairs of a sum, if it is wanted; that in the votes is written down."""
        weight, linear, square, center = factor
        if of_votes:
            self.factors.append(factor)
        if not of_weight:
            return None
        toward = self.dot(linear, square, center)
        return toward.sum(-1, keepdim=True) if weight.shape[-1] == 1 else toward

    def carry_back(self, wanted: Sequence[bool]) -> list[Tensor | None]:
        """The gradients in poses, weights and biases, as far as they are wanted."""
        groups, center = self._merge()
        self.factors.clear()
        # Straight into the totals where they lie in order: blocks have rows of their own, and share the weights.
        direct = [total is not None and total.is_contiguous() for total in self.totals]
        to_pose, to_weight = (
            None if not want else total if there else self.empty(*shape)
            for want, total, there, shape in zip(
                wanted[:2], self.totals, direct, (self.pose_shape, self.weight_shape), strict=False
            )
        )
        to_bias = None
        if self.bias_shape is not None and wanted[2]:
            shape = self.bias_groups * self.sizes.types, self.shape[3], *self.bias_shape[1:3]
            to_bias = self.packed[0].new_zeros(shape)
        pairs = [pair.mT.contiguous() for pair, *_ in groups]
        linear = torch.stack([part for _, part, _ in groups])
        square = None if center is None else torch.stack([part for *_, part in groups])
        self._run(
            "carry", linear=linear, square=square, center=center, factors=len(groups), to_pose=to_pose,
            factor_pairs=(c_void_p * len(groups))(*(pair.data_ptr() for pair in pairs)),
            factor_columns=(c_int64 * len(groups))(*(pair.shape[-2] for pair in pairs)),
            to_weight=to_weight, to_bias=to_bias, add=int(direct[1]),
        )  # fmt: skip
        if to_bias is not None:
            assert self.bias_shape is not None
            to_bias = to_bias.permute(1, 2, 3, 0).sum_to_size(self.bias_shape)
        return [None if direct[0] else to_pose, None if direct[1] else to_weight, to_bias]

    def _merge(self) -> tuple[list[tuple[Tensor, Tensor, Tensor]], Tensor | None]:
        """Factors with the same weights of pairs become one, and all are measured from one center: the last that the
        routing came to, near which the others are."""
        quadratic = [factor for factor in self.factors if factor[2] is not None]
        zero = self.packed[0].new_zeros(*self.shape[:2], self.shape[3], self.pose_size)
        reference = None
        if quadratic:
            reference = zero if quadratic[0][3] is None else quadratic[0][3].contiguous()
        merged: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = {}
        for pairs, linear, square, center in self.factors:
            linear = zero if linear is None else linear
            if square is not None and reference is not None:
                linear = linear + 2.0 * square * (reference - (zero if center is None else center))
            square = zero if square is None else square
            key = pairs.data_ptr(), pairs.shape[-1]
            if key in merged:
                linear, square = linear + merged[key][1], square + merged[key][2]
            merged[key] = pairs, linear, square
        return list(merged.values()), reference

    def _run(self, name: str, **fields: object) -> None:
        job = KernelJob.from_buffer_copy(self._job)
        for key, field in fields.items():
            if field is not None:
                setattr(job, key, field.data_ptr() if isinstance(field, Tensor) else field)
        if self.origin is not None:
            job.origin = self.origin.data_ptr()
        run_kernel(name, self.packed[0].dtype, job)


class NativeVotes(BlockVotes):
    """Votes that the kernels make whenever they are asked for."""

    def __init__(self, builder: Builder, tensors: Sequence[Tensor], workspace: Workspace) -> None:
        self.builder, self.tensors = builder, tensors
        self.competition = builder.competition
        self.tape = Tape(tensors, workspace)
        self.native_competition = NativeCompetition(builder.competition, self.tape.sizes.threads)
        # Every use of the votes takes the anchor along: when its turn comes in the backward pass, all uses have written
        # down their factors.
        self.anchor = _Anchor.apply(self.tape, *tensors)

    def mix(self, weight: Weights) -> Parents:
        return _Sum.apply(weight, None, self.anchor, self.tape, False)

    def mix_squares(
        self, weight: Weights, center: Parents | None = None, *, floor: Tensor | None = None, coarse: bool = False
    ) -> Parents:
        return _Sum.apply(weight, center, self.anchor, self.tape, True)

    def moments(self, share: Weights, *, floor: Tensor | None = None) -> tuple[Parents, Parents]:
        return _Moments.apply(share, self.anchor, self.tape)

    def agreement(self, parent: Parents) -> Pairs:
        return _Dot.apply(parent, None, None, None, self.anchor, self.tape)

    def distance(self, mean: Parents | None, precision: Parents, plus: Float[Tensor, "n q j"] | None = None) -> Pairs:
        return _Dot.apply(None, precision, mean, plus, self.anchor, self.tape)

    def centered(self) -> tuple[BlockVotes, Parents]:
        n, q, i, _ = self.tape.shape
        even = self.tape.packed[0].new_full((1, 1, 1, 1), 1.0 / i).expand(n, q, i, 1)
        self.tape.origin, _ = self.tape.recall(lambda: self.tape.sum(even, None, squares=False))
        return self, self.tape.origin

    def compete(self, logits: Pairs, *, orphan: bool = False) -> Pairs:
        return self.native_competition.share(logits, orphan)

    def split_mass(
        self, logits: Pairs | None, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Weights, Float[Tensor, "n q j 1"]]:
        return (
            super().split_mass(logits, log_present)
            if logits is None
            else self.native_competition.split(logits, log_present)
        )

    def split_log_mass(
        self, logits: Pairs, log_present: Float[Tensor, "n q i 1"] | None
    ) -> tuple[Pairs, Float[Tensor, "n q j 1"]]:
        return self.native_competition.split(logits, log_present, in_logs=True)

    def pairs(self) -> Pairs:
        return self.tape.packed[0].new_zeros(()).expand(self.tape.shape)

    def numbers(self) -> Float[Tensor, "n q i j p"]:
        numbers = self.builder.build(self.tensors).permute(0, 1, 4, 2, 3)
        return numbers if self.tape.origin is None else numbers - self.tape.origin.unsqueeze(2)


def _alias(sums: Sums) -> Sums:
    """The same numbers without what autograd knows of them."""
    first, second = sums
    return first.detach(), None if second is None else second.detach()


def _version(sums: Sums) -> int:
    return sum(part._version for part in sums if part is not None)


def _packed(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


class _Anchor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tape: Tape, *tensors: Tensor) -> Tensor:
        ctx.tape = tape
        return tape.packed[0].new_zeros(())

    @staticmethod
    def backward(ctx, *grads: Tensor):
        wanted = ctx.needs_input_grad[1:]
        if not ctx.tape.factors:
            return None, *([None] * len(wanted))
        return None, *ctx.tape.carry_back(wanted)[: len(wanted)]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Weights, center: Parents | None, anchor: Tensor, tape: Tape, squares: bool) -> Parents:
        first, second = tape.recall(lambda: tape.sum(weight, center, squares=squares))
        ctx.tape, ctx.squares = tape, squares
        ctx.save_for_backward(weight, center, first if squares else None)
        return first if second is None else second

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        weight, center, first = ctx.saved_tensors
        of_weight, _, of_votes, *_ = ctx.needs_input_grad
        factor = (weight, None, grad, center) if ctx.squares else (weight, grad, None, center)
        toward = ctx.tape.pull_sum(factor, of_weight=of_weight, of_votes=of_votes)
        to_center = -2.0 * grad * first if center is not None and ctx.needs_input_grad[1] else None
        return toward, to_center, grad.new_zeros(()), None, None


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, share: Weights, anchor: Tensor, tape: Tape) -> tuple[Parents, Parents]:
        mean, variance = tape.recall(lambda: tape.sum(share, None, squares=True, moments=True))
        assert variance is not None
        ctx.tape = tape
        ctx.save_for_backward(share, mean)
        return mean, variance

    @staticmethod
    def backward(ctx, *grads: Tensor):
        share, mean = ctx.saved_tensors
        # The deviations from the mean sum to zero: the variance has no gradient in it.
        linear, square = grads
        of_share, of_votes, _ = ctx.needs_input_grad
        toward = ctx.tape.pull_sum((share, linear, square, mean), of_weight=of_share, of_votes=of_votes)
        return toward, linear.new_zeros(()), None


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, linear: Parents | None, square: Parents | None, center: Parents | None, plus: Tensor | None,
        anchor: Tensor, tape: Tape,
    ) -> Pairs:  # fmt: skip
        ctx.tape = tape
        ctx.save_for_backward(linear, square, center)
        return tape.dot(linear, square, center, plus)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,) = grads
        linear, square, center = ctx.saved_tensors
        of_linear, of_square, of_center, of_plus, of_votes, _ = ctx.needs_input_grad
        if of_votes:
            ctx.tape.factors.append((grad, linear, square, center))
        first = second = None
        if of_linear or of_square or of_center:
            first, second = ctx.tape.sum(grad, center, squares=square is not None)
        to_center = -2.0 * square * first if of_center and square is not None and first is not None else None
        to_plus = grad.sum(-2) if of_plus else None
        anchor = grad.new_zeros(()) if of_votes else None
        return first if of_linear else None, second if of_square else None, to_center, to_plus, anchor, None
