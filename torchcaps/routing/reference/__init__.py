"""All routings as their papers write them: index loops over children and parents, one example at a time.

Never fast, and sharing no code with the fast versions: these are what the fast ones are held to, in value and in
gradient. All take votes as a plain tensor ``(*b, i, j, p)``. Where not every parent sees every child (a convolution
written out over its whole grid), ``sees[i, j]`` says who does; elsewhere all do.
"""

from torchcaps.routing.reference.dynamic import dynamic_routing
from torchcaps.routing.reference.em import em_routing
from torchcaps.routing.reference.fixed_point import fixed_point_routing
from torchcaps.routing.reference.fm import fm_agreement
from torchcaps.routing.reference.heinsen import heinsen_routing
from torchcaps.routing.reference.inverted_attention import inverted_attention_step
from torchcaps.routing.reference.self_attention import self_attention_routing
from torchcaps.routing.reference.selfrouting import self_routing
from torchcaps.routing.reference.uniform import uniform_routing
from torchcaps.routing.reference.vb import vb_routing

__all__ = [
    "dynamic_routing",
    "em_routing",
    "fixed_point_routing",
    "fm_agreement",
    "heinsen_routing",
    "inverted_attention_step",
    "self_attention_routing",
    "self_routing",
    "uniform_routing",
    "vb_routing",
]
