"""Vector routing against plain einsum: with the votes built, and with their sum in closed form written out."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases import OURS, Case, Target, Work
from torchcaps.layers import VectorRouting

EINSUM, CLOSED = "einsum over votes", "einsum, closed form"
Sizes = tuple[int, int, int, int, int]


def make_layer(sizes: Sizes) -> tuple[VectorRouting, Tensor]:
    """A layer for any number of children, and a batch of them."""
    batch, children, wide, parents, narrow = sizes
    torch.manual_seed(0)
    return VectorRouting(None, wide, parents, narrow), torch.randn(batch, children, wide, requires_grad=True)


def _work(sizes: Sizes, *, ours: bool, build: bool) -> Work:
    layer, vectors = make_layer(sizes)
    weights = list(layer.parameters())

    def work() -> object:
        found = layer(vectors) if ours else vector_routing_einsum(layer, vectors, build=build)
        return torch.autograd.grad(found.square().sum(), [vectors, *weights])

    return work


def vector_routing_einsum(
    layer: VectorRouting, vectors: Float[Tensor, "b i d"], *, build: bool
) -> Float[Tensor, "b j h"]:
    """The efficient form of Heinsen 2022 with a layer's weights, formula by formula: votes built, or summed lazily."""
    assert isinstance(layer.beta_use, torch.nn.Linear)
    assert isinstance(layer.beta_ignore, torch.nn.Linear)
    use, ignore = layer.beta_use(vectors), layer.beta_ignore(vectors)
    scaled = vectors * vectors.shape[-2] ** -0.5
    presence = ((scaled * layer.score_weight).sum(-1) + layer.score_bias).sigmoid().unsqueeze(-1)
    votes = None
    if build:
        votes = torch.einsum("bid,jd,dh->bijh", scaled, layer.vote_scale, layer.vote_weight) + layer.vote_bias
    parents = vectors
    for iteration in range(layer.num_iters):
        if iteration == 0:
            routing = vectors.new_full((layer.out_caps,), 1.0 / layer.out_caps)
        else:
            seen = F.layer_norm(parents, parents.shape[-1:])
            predicted = torch.einsum("bjh,hd,jd->bjd", seen, layer.predict_weight, layer.predict_scale)
            likeness = torch.einsum("bid,bjd->bij", vectors, predicted + layer.predict_bias)
            routing = F.logsigmoid(likeness * layer.compare_weight + layer.compare_bias).softmax(-1)
        used = presence * routing
        credit = use * used - ignore * (presence - used)
        if votes is not None:
            parents = torch.einsum("bij,bijh->bjh", credit, votes)
        else:
            total = torch.einsum("bij,bid->bjd", credit, scaled)
            parents = torch.einsum("bjd,jd,dh->bjh", total, layer.vote_scale, layer.vote_weight)
            parents = parents + torch.einsum("bij,jh->bjh", credit, layer.vote_bias)
    return F.layer_norm(parents, parents.shape[-1:])


def count_vector_operations(sizes: Sizes) -> float:
    """Multiplications and additions of a training step in closed form; the backward pass takes twice as many."""
    with FlopCounterMode(display=False) as counter:
        vector_routing_einsum(*make_layer(sizes), build=False)
    return 3.0 * counter.get_total_flops()


def vector_case(sizes: Sizes, title: str, faster: float) -> Case:
    """A training step of one layer of these sizes."""
    contenders: dict[str, Callable[[], Work]] = {
        OURS: partial(_work, sizes, ours=True, build=False),
        EINSUM: partial(_work, sizes, ours=False, build=True),
        CLOSED: partial(_work, sizes, ours=False, build=False),
    }
    batch, children, wide, parents, narrow = sizes
    said = f"Vector routing, {title}: {batch} × {children:,} children of {wide} → {parents} of {narrow}, 2 iterations"
    targets = (Target(EINSUM, faster), Target(CLOSED, 1.0))
    return Case(said, contenders, targets, operations=lambda: count_vector_operations(sizes))


VECTORS: dict[str, Callable[[], Case]] = {
    "vectors-text": lambda: vector_case((20, 175, 384, 64, 384), "MiniLM's states", 10.0),
    "vectors-narrow": lambda: vector_case((20, 175, 64, 16, 16), "narrow states", 2.0),
    "vectors-small": lambda: vector_case((4, 16, 16, 4, 16), "small", 1.0),
}
