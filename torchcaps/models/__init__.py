"""The networks of the papers, by name; and the parts to make others from.

``list()`` names them, ``create(name, **overrides)`` makes one, ``save`` and ``load`` keep one in a file.
"""

from torchcaps.models.capsule_net import HEADS, CapsuleNet, Prediction
from torchcaps.models.entry import Entry
from torchcaps.models.registry import MODELS, configure, create, entry, list
from torchcaps.models.specs import PRIMARIES, Class, Conv, Dense, Given, Primary, routing

__all__ = [
    "HEADS",
    "MODELS",
    "PRIMARIES",
    "CapsuleNet",
    "Class",
    "Conv",
    "Dense",
    "Entry",
    "Given",
    "Prediction",
    "Primary",
    "configure",
    "create",
    "entry",
    "list",
    "routing",
]
