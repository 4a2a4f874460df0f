"""Votes -> capsules: routings, each a function and a module.

``ROUTINGS`` gives the modules their names. Layers take a name, the import path of a class of your own
(``"my_package.my_module:MyRouting"``), a class, or an instance.
"""

from torchcaps.routing import reference
from torchcaps.routing.base import Iteration, Routing, Trace, VoteShape
from torchcaps.routing.concurrent import concurrent_routing
from torchcaps.routing.dynamic import DynamicRouting, dynamic_routing
from torchcaps.routing.em import EMRouting, em_routing, rising_inverse_temperature
from torchcaps.routing.fixed_point import FixedPointRouting, fixed_point_routing
from torchcaps.routing.fm import FMAgreement, fm_agreement
from torchcaps.routing.heinsen import HeinsenRouting, heinsen_routing
from torchcaps.routing.inverted_attention import (
    InvertedAttention,
    active_inverted_attention_step,
    inverted_attention_step,
)
from torchcaps.routing.registry import ROUTINGS, create, find, name_of, resolve
from torchcaps.routing.self_attention import SelfAttentionRouting, self_attention_routing
from torchcaps.routing.selfrouting import SelfRouting, self_routing
from torchcaps.routing.uniform import UniformRouting, uniform_routing
from torchcaps.routing.vb import VBRouting, vb_routing
from torchcaps.routing.vectors import RoutedVectors, combine_credit, vector_routing

__all__ = [
    "ROUTINGS",
    "DynamicRouting",
    "EMRouting",
    "FMAgreement",
    "FixedPointRouting",
    "HeinsenRouting",
    "InvertedAttention",
    "Iteration",
    "RoutedVectors",
    "Routing",
    "SelfAttentionRouting",
    "SelfRouting",
    "Trace",
    "UniformRouting",
    "VBRouting",
    "VoteShape",
    "active_inverted_attention_step",
    "combine_credit",
    "concurrent_routing",
    "create",
    "dynamic_routing",
    "em_routing",
    "find",
    "fixed_point_routing",
    "fm_agreement",
    "heinsen_routing",
    "inverted_attention_step",
    "name_of",
    "reference",
    "resolve",
    "rising_inverse_temperature",
    "self_attention_routing",
    "self_routing",
    "uniform_routing",
    "vb_routing",
    "vector_routing",
]
