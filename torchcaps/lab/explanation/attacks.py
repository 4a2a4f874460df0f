"""Small changes of the image that are made to mislead: FGSM and PGD."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps.lab.tracing.traces import evaluating
from torchcaps.losses import target_rows
from torchcaps.models.base import device_of

Attack = Literal["fgsm", "pgd"]


def attack(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    target: Int[Tensor, "n"] | Float[Tensor, "n k"],
    *,
    eps: float,
    method: Attack = "fgsm",
    steps: int = 10,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> Float[Tensor, "n channel row column"]:
    """Move every number of the images by at most ``eps`` so that a wrong class rises above the right one.

    ``fgsm`` goes the whole way in one step, along the sign of the gradient (Goodfellow 2014); ``pgd`` in ``steps`` of
    2.5 eps / steps, back into the ball after each (Madry 2017), from the image itself. ``bounds`` are the numbers that
    an image may have; ``None`` for inputs that are standardized.
    """
    if eps < 0 or steps < 1:
        raise ValueError(f"an attack needs eps from 0 up and at least one step; got eps={eps}, steps={steps}")
    if method not in ("fgsm", "pgd"):
        raise ValueError(f"no attack {method!r}; there are 'fgsm' and 'pgd'")
    if eps == 0:
        return images.detach().clone()
    images, target = images.to(device_of(model)), target.to(device_of(model))
    count, stride = (1, eps) if method == "fgsm" else (steps, 2.5 * eps / steps)
    moved = images.detach().clone()
    with evaluating(model), torch.enable_grad():
        for _ in range(count):
            moved.requires_grad_(True)
            (gradient,) = torch.autograd.grad(lead_of_the_wrong(model(moved).logits, target).sum(), moved)
            moved = moved.detach() + stride * gradient.sign()
            moved = torch.minimum(torch.maximum(moved, images - eps), images + eps)
            if bounds is not None:
                moved = moved.clamp(*bounds)
    return moved.detach()


def lead_of_the_wrong(
    logits: Float[Tensor, "n k"], target: Int[Tensor, "n"] | Float[Tensor, "n k"]
) -> Float[Tensor, "n"]:
    """How far the highest logit of a wrong class is above the lowest of a right one (Carlini and Wagner 2016).

    Not the loss of training: the margin loss and the spread loss are flat where the right class leads by their margin,
    and an attack along a gradient of zero would leave those images as they are and call the network robust.
    """
    present = target_rows(target, logits) > 0.5
    wrong = logits.masked_fill(present, -torch.inf).amax(-1)
    right = logits.masked_fill(~present, torch.inf).amin(-1)
    return wrong - right
