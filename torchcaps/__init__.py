"""Capsule networks for PyTorch: routings by agreement, exact to their papers, fast on ordinary hardware."""

import importlib
from typing import TYPE_CHECKING, Any

from torchcaps import backbones, data, decoders, export, heads, losses, models, routing, votes
from torchcaps.capsules import Capsules, squash
from torchcaps.extras import explain_missing
from torchcaps.layers import ClassCapsules, ConvCapsules, DenseCapsules, GeneralVectorRouting, VectorRouting
from torchcaps.norms import PoseNorm
from torchcaps.primary import (
    BatchNormPrimaryCapsules,
    DepthwisePrimaryCapsules,
    LayerNormPrimaryCapsules,
    MatrixPrimaryCapsules,
    NormalizedPrimaryCapsules,
    NormalizedScorePrimaryCapsules,
    SquashedPrimaryCapsules,
    flatten_grid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from torchcaps import lab
    from torchcaps.models import Model


def load(path: "str | Path") -> "Model":
    """A trained model, ready for evaluation.

    Its ``class_names`` are in the order of its logits, and ``model(model.preprocess(images))`` takes images from 0 to 1
    of the size that it was trained on.

    Args:
        path: a run folder, a model file, or the name of a trained model that comes with the package
            (``tc.models.list(pretrained=True)``); ``"shipped"`` is the most accurate of those.

    Returns:
        The model.

    Example:
        >>> model = load("shipped")
        >>> images = data.load("mnist_sample", "test")[0].image[None]
        >>> model.class_names[model(model.preprocess(images)).logits.argmax()]
        '7'
    """
    try:
        from torchcaps.lab.evaluation.subjects import open_model  # all that evaluation needs is slow to import
    except ImportError as error:
        raise ImportError(explain_missing(error, "torchcaps.load") or str(error), name=error.name) from error
    return open_model(path).model


__version__ = "0.1.0"

__all__ = [
    "BatchNormPrimaryCapsules",
    "Capsules",
    "ClassCapsules",
    "ConvCapsules",
    "DenseCapsules",
    "DepthwisePrimaryCapsules",
    "GeneralVectorRouting",
    "LayerNormPrimaryCapsules",
    "MatrixPrimaryCapsules",
    "NormalizedPrimaryCapsules",
    "NormalizedScorePrimaryCapsules",
    "PoseNorm",
    "SquashedPrimaryCapsules",
    "VectorRouting",
    "backbones",
    "data",
    "decoders",
    "export",
    "flatten_grid",
    "heads",
    "lab",
    "load",
    "losses",
    "models",
    "routing",
    "squash",
    "votes",
]


def __getattr__(name: str) -> Any:
    if name in ("lab", "sklearn"):  # slow to import, and not needed for a capsule layer
        return importlib.import_module(f"torchcaps.{name}")
    raise AttributeError(f"module 'torchcaps' has no attribute {name!r}")
