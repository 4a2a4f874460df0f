"""How large a model is and how much it computes."""

from math import prod

import torch
from torch import Tensor, nn

from torchcaps.layers import CapsuleLayer, ConvCapsules, VectorRouting
from torchcaps.models.capsule_net import CapsuleNet

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def count_parameters(model: nn.Module) -> int:
    """All learned numbers of a model; running statistics are not among them.

    Args:
        model: any module.

    Returns:
        Their number.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in model.parameters())


def count_statistics(model: nn.Module) -> int:
    """The running means and variances of batch norm, which some papers count among the parameters.

    Args:
        model: any module.

    Returns:
        Their number.

    Example:
        >>> count_statistics(nn.BatchNorm2d(3))
        6
    """
    return sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())


@torch.no_grad()
def count_macs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Multiply-adds of one example: of convolutions and linear maps, counted by hooks while it runs, and of capsule
    layers as their papers' formulas have them (the votes once, then each iteration's sum over the votes and their
    comparison with the parents). What our layers save is not counted; the decoder is not run.

    Args:
        model: any module.
        input_shape: shape of one input.

    Returns:
        Their number.

    Example:
        >>> count_macs(nn.Linear(3, 2), (3,))
        6
    """
    total = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        if isinstance(module, CONVOLUTIONS):
            total += output[0, 0].numel() * weight.numel()
        elif isinstance(module, TRANSPOSED):
            total += inputs[0][0, 0].numel() * weight.numel()
        else:
            total += prod(output.shape[1:-1]) * weight.numel()

    def count_vectors(module: nn.Module, inputs: tuple[Tensor | None, ...], output: object) -> None:
        nonlocal total
        assert isinstance(module, VectorRouting)
        assert inputs[0] is not None
        total += _vector_macs(module, inputs[0].shape[-2])

    counted = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)
    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, counted)]
    vector_routings = [module for module in model.modules() if isinstance(module, VectorRouting)]
    hooks += [module.register_forward_hook(count_vectors) for module in vector_routings]
    training = model.training
    model.eval()
    try:
        parameter = next(model.parameters())
        example = parameter.new_zeros(1, *input_shape)
        if isinstance(model, CapsuleNet):
            stages = model.stages(example)
            model.head(stages[-1])
            for layer, below, above in zip(model.layers, stages[:-1], stages[1:], strict=True):
                if isinstance(layer, CapsuleLayer):
                    total += _layer_macs(layer, below.pose, above.pose, model.num_iters)
        else:
            model(example)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return total


def _layer_macs(layer: CapsuleLayer, below: Tensor, above: Tensor, num_iters: int | None) -> int:
    """One example's votes, and for each iteration Σ_i r_ij v_ij and, but for the last, what compares v_ij with parent
    j."""
    parents = prod(above.shape[1:-1])
    field = layer.vote_shape.children if isinstance(layer, ConvCapsules) else None
    pairs = parents * (field or prod(below.shape[1:-1]))
    iterations = num_iters or getattr(layer.routing, "num_iters", 1)
    return pairs * layer.vote_shape.pose * (layer.columns + 2 * iterations - 1)


def _vector_macs(layer: VectorRouting, children: int) -> int:
    """One example's scores, its betas where they are linear maps, and for each iteration the sum of votes in closed
    form and, but for the last, the predictions and their comparison with the children."""
    parents, wide, narrow = layer.out_caps, layer.in_pose, layer.out_pose
    pairs, maps = children * parents * wide, parents * wide * narrow
    betas = 2 * pairs if layer.in_caps is None else 0
    return children * wide + betas + (2 * layer.num_iters - 1) * (pairs + maps)
