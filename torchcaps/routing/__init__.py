"""Votes -> capsules: the five routings, each a function and a module.

``ROUTINGS`` gives the modules their names; layers take any of them by name or as an instance.
"""

from torchcaps.routing import reference
from torchcaps.routing.base import Iteration, Routing, Trace, VoteShape
from torchcaps.routing.concurrent import concurrent_routing
from torchcaps.routing.dynamic import DynamicRouting, dynamic_routing
from torchcaps.routing.em import EMRouting, em_routing, rising_inverse_temperature
from torchcaps.routing.fm import FMAgreement, fm_agreement
from torchcaps.routing.heinsen import HeinsenRouting, heinsen_routing
from torchcaps.routing.inverted_attention import (
    InvertedAttention,
    active_inverted_attention_step,
    inverted_attention_step,
)

ROUTINGS: dict[str, type[Routing]] = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "heinsen": HeinsenRouting,
    "inverted_attention": InvertedAttention,
    "fm": FMAgreement,
}


def create(routing: str | Routing) -> Routing:
    """A routing by its name, with its paper's settings; an instance passes through."""
    if isinstance(routing, Routing):
        return routing
    if routing not in ROUTINGS:
        raise ValueError(f"no routing {routing!r}; there are {', '.join(map(repr, ROUTINGS))}")
    return ROUTINGS[routing]()


__all__ = [
    "ROUTINGS",
    "DynamicRouting",
    "EMRouting",
    "FMAgreement",
    "HeinsenRouting",
    "InvertedAttention",
    "Iteration",
    "Routing",
    "Trace",
    "VoteShape",
    "active_inverted_attention_step",
    "concurrent_routing",
    "create",
    "dynamic_routing",
    "em_routing",
    "fm_agreement",
    "heinsen_routing",
    "inverted_attention_step",
    "reference",
    "rising_inverse_temperature",
]
