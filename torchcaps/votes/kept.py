"""A computation that keeps its graph, and whose backward pass runs in the precision of its forward pass."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._autograd import _get_current_graph_task_keep_graph

from torchcaps.votes.modes import in_full_precision

Compute = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


def keep_graph(compute: Compute, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """``compute(tensors)``, differentiated by autograd to any order, with autocast off in the backward pass too.

    Plain autograd would run the products of the backward pass in half precision if ``backward()`` is called under
    autocast.
    """
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return compute(tensors)
    return _Kept.apply(compute, *tensors)


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, compute: Compute, *tensors: Tensor):
        with torch.enable_grad():
            # Aliases: gradients stop at them, and gradients of gradients go on from them to the inputs.
            inputs = [tensor.view_as(tensor) for tensor in tensors]
            results = compute(inputs)
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.kept = inputs, results
        return tuple(result.detach() for result in results)

    @staticmethod
    def backward(ctx, *grads: Tensor | None):
        (first, *_) = ctx.saved_tensors  # raises if the graph is freed already
        inputs, results = ctx.kept
        used = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        wanted = [tensor for tensor, want in zip(inputs, ctx.needs_input_grad[1:], strict=True) if want]
        if not used:
            return (None,) * (1 + len(inputs))
        # Memory is freed when autograd would free it: with the outer graph.
        keep = _get_current_graph_task_keep_graph()
        again = torch.is_grad_enabled()  # someone will differentiate this gradient
        outputs, arriving = zip(*used, strict=True)
        with in_full_precision(first.device):
            found = iter(
                torch.autograd.grad(
                    outputs, wanted, arriving, retain_graph=keep or again, create_graph=again, allow_unused=True
                )
            )
        if not keep:
            ctx.kept = None
        return None, *(next(found) if want else None for want in ctx.needs_input_grad[1:])
