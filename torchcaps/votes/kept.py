"""A computation that keeps its graph, and whose backward pass runs in the precision of its forward pass."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._autograd import _get_current_graph_task_keep_graph

from torchcaps.kernels.modes import are_batched, in_full_precision

Compute = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


def keep_graph(
    compute: Compute, tensors: Sequence[Tensor], compute_plainly: Compute | None = None
) -> tuple[Tensor, ...]:
    """``compute(tensors)``, differentiated by autograd to any order, with autocast off in the backward pass too.

    ``compute_plainly`` stands in for a computation that autograd cannot differentiate twice, or for many gradients at
    once.

    Plain autograd would run the products of the backward pass in half precision if ``backward()`` is called under
    autocast.
    """
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return compute(tensors)
    return _Kept.apply(compute, compute_plainly, *tensors)


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, compute: Compute, compute_plainly: Compute | None, *tensors: Tensor):
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
            results = compute(inputs)
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.compute, ctx.plain, ctx.kept = compute, compute_plainly, (inputs, results)
        return tuple(result.detach() for result in results)

    @staticmethod
    def backward(ctx, *grads: Tensor | None):
        tensors = ctx.saved_tensors  # raises if the graph is freed already
        again = torch.is_grad_enabled()  # someone will differentiate this gradient
        with in_full_precision(tensors[0].device):
            # A graph of its own then, on from aliases to the inputs: autograd frees what it goes through.
            anew = again or (ctx.plain is not None and are_batched([grad for grad in grads if grad is not None]))
            inputs, results = _compute_again(ctx.plain or ctx.compute, tensors) if anew else ctx.kept
            # Memory is freed when autograd would free it: with the outer graph.
            keep = again or _get_current_graph_task_keep_graph()
            found = _gradients(inputs, results, grads, ctx.needs_input_grad[2:], keep=keep, again=again)
        if not keep:
            ctx.kept = None
        return None, None, *found


def _compute_again(compute: Compute, tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    with torch.enable_grad():
        aliases = [tensor.view_as(tensor) for tensor in tensors]
        return aliases, compute(aliases)


def _gradients(
    inputs: Sequence[Tensor],
    results: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    wanted: Sequence[bool],
    *,
    keep: bool,
    again: bool,
) -> list[Tensor | None]:
    used = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
    if not used:
        return [None] * len(inputs)
    outputs, arriving = zip(*used, strict=True)
    ends = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    there = iter(torch.autograd.grad(outputs, ends, arriving, retain_graph=keep, create_graph=again, allow_unused=True))
    return [next(there) if want else None for want in wanted]
