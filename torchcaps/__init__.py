"""Capsule networks for PyTorch: five routings by agreement, exact to their papers, fast on ordinary hardware."""

from torchcaps import backbones, data, decoders, heads, losses, models, routing, votes
from torchcaps.capsules import Capsules, squash
from torchcaps.layers import ClassCapsules, ConvCapsules, DenseCapsules
from torchcaps.primary import (
    LayerNormPrimaryCapsules,
    MatrixPrimaryCapsules,
    NormalizedPrimaryCapsules,
    NormalizedScorePrimaryCapsules,
    SquashedPrimaryCapsules,
    flatten_grid,
)

__version__ = "0.1.0"

__all__ = [
    "Capsules",
    "ClassCapsules",
    "ConvCapsules",
    "DenseCapsules",
    "LayerNormPrimaryCapsules",
    "MatrixPrimaryCapsules",
    "NormalizedPrimaryCapsules",
    "NormalizedScorePrimaryCapsules",
    "SquashedPrimaryCapsules",
    "backbones",
    "data",
    "decoders",
    "flatten_grid",
    "heads",
    "losses",
    "models",
    "routing",
    "squash",
    "votes",
]
