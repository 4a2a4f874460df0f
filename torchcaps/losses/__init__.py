"""Losses on class logits, each with the rule by which it decides; and the loss of a reconstruction."""

from torchcaps.losses.classification import (
    ClassificationLoss,
    Decision,
    MarginLoss,
    SpreadLoss,
    decide,
    target_rows,
)
from torchcaps.losses.entropy import BinaryCrossEntropyLoss, CrossEntropyLoss, NLLLoss
from torchcaps.losses.reconstruction import reconstruction_errors, reconstruction_loss
from torchcaps.losses.registry import LOSSES, choose_loss

__all__ = [
    "LOSSES",
    "BinaryCrossEntropyLoss",
    "ClassificationLoss",
    "CrossEntropyLoss",
    "Decision",
    "MarginLoss",
    "NLLLoss",
    "SpreadLoss",
    "choose_loss",
    "decide",
    "reconstruction_errors",
    "reconstruction_loss",
    "target_rows",
]
