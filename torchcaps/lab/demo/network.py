"""The network of the page: what it predicts, and where on the image the parts of each class are."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.capsules import log_sigmoid
from torchcaps.export.outputs import Outputs
from torchcaps.lab.explanation.couplings import class_shares
from torchcaps.lab.tracing.networks import grid_on_image
from torchcaps.lab.tracing.traces import trace_with_logits
from torchcaps.layers import CapsuleLayer
from torchcaps.models import CapsuleNet, Model


class PartsOutputs(Outputs):
    """A network of capsules on a grid: logits, presences, poses; ``shares (b, iteration, row, column, class)``, what
    part of each position goes to each class through all layers; ``parts (b, row, column)``, how much is there."""

    def compute(self, *inputs: Tensor) -> dict[str, Tensor]:
        (images,) = inputs
        layers, logits = trace_with_logits(self.module, images)
        parents, children = layers[-1].parents, layers[0].children.pose
        rows, columns = children.shape[1:3]
        presence = layers[0].presence.unflatten(1, (rows * columns, -1))  # b place type
        weight = presence / presence.sum(-1, keepdim=True).clamp_min(1e-30)
        shares = []
        for iteration in range(max(len(layer.iterations) for layer in layers)):
            by_type = class_shares(layers, iteration).unflatten(1, (rows * columns, -1))
            shares.append((weight.unsqueeze(-1) * by_type).sum(2).unflatten(1, (rows, columns)))
        return {
            "logits": logits,
            "presences": log_sigmoid(logits if parents.score is None else parents.score).exp(),
            "poses": parents.pose,
            "shares": torch.stack(shares, 1),
            "parts": presence.mean(-1).unflatten(1, (rows, columns)),
        }


def find_grid(model: Model) -> dict[str, Any] | None:
    """Where the grid of primary capsules lies on the image, as shares of its height and width; ``None`` where there is
    no grid, or a layer whose routing cannot be seen."""
    if not isinstance(model, CapsuleNet) or not all(isinstance(layer, CapsuleLayer) for layer in model.layers):
        return None
    try:
        grid = grid_on_image(model, torch.rand(1, *model.image, generator=torch.Generator().manual_seed(0)))
    except ValueError:
        return None
    left, right, bottom, top = grid.extent
    _, height, width = model.image
    return {
        "rows": grid.shape[0],
        "columns": grid.shape[1],
        "left": (left + 0.5) / width,
        "right": (right + 0.5) / width,
        "top": (top + 0.5) / height,
        "bottom": (bottom + 0.5) / height,
    }
