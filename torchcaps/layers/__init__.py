"""Votes and a routing together: layers from capsules to capsules, with any routing in any of them."""

from torchcaps.layers.base import CapsuleLayer
from torchcaps.layers.class_capsules import ClassCapsules
from torchcaps.layers.conv import ConvCapsules
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.general_vector_routing import GeneralVectorRouting
from torchcaps.layers.vector_routing import VectorRouting

__all__ = [
    "CapsuleLayer",
    "ClassCapsules",
    "ConvCapsules",
    "DenseCapsules",
    "GeneralVectorRouting",
    "VectorRouting",
]
