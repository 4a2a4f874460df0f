"""The networks of the papers, by name; and the parts to make others from.

``list()`` names them, ``create(name, **overrides)`` makes one, ``save`` and ``load`` keep one in a file.
"""

from torchcaps.models import importers
from torchcaps.models.assembling import assemble, check_config
from torchcaps.models.base import Model, ModelEntry, Origin, Prediction, Training, from_pretrained
from torchcaps.models.capsule_net import HEADS, CapsuleNet
from torchcaps.models.counting import count_macs, count_parameters, count_statistics
from torchcaps.models.heinsen2022 import FrozenRouting
from torchcaps.models.registry import MODELS, Row, configure, create, entry, table
from torchcaps.models.registry import list_models as list  # the public name; nothing inside is called so
from torchcaps.models.saving import checksum, load, load_weights, save
from torchcaps.models.specs import PRIMARIES, Class, Conv, Dense, Given, Primary, routing
from torchcaps.models.timm_backbones import TimmBackbone

__all__ = [
    "HEADS",
    "MODELS",
    "PRIMARIES",
    "CapsuleNet",
    "Class",
    "Conv",
    "Dense",
    "FrozenRouting",
    "Given",
    "Model",
    "ModelEntry",
    "Origin",
    "Prediction",
    "Primary",
    "Row",
    "TimmBackbone",
    "Training",
    "assemble",
    "check_config",
    "checksum",
    "configure",
    "count_macs",
    "count_parameters",
    "count_statistics",
    "create",
    "entry",
    "from_pretrained",
    "importers",
    "list",
    "load",
    "load_weights",
    "routing",
    "save",
    "table",
]
