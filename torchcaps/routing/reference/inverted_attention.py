"""Inverted dot-product attention."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.routing.reference.loops import Sees, list_seen, route_each


def inverted_attention_step(
    votes: Float[Tensor, "*b i j p"],
    parents: Float[Tensor, "*b j p"] | None = None,
    *,
    norm: Callable[[Tensor], Tensor] | None = None,
    scale: float = 1.0,
    sees: Sees | None = None,
) -> Float[Tensor, "*b j p"]:
    """Tsai 2020, Procedure 1."""

    def one(v: Tensor, p_j: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = v.shape
        seen = list_seen(sees, n_i, n_j)
        r = {}
        for i in range(n_i):
            agreement = {j: scale * torch.dot(p_j[j], v[i, j]) for j in range(n_j) if (i, j) in seen}
            total = sum(torch.exp(x) for x in agreement.values())
            r.update({(i, j): torch.exp(agreement[j]) / total for j in agreement})
        poses = [sum((r[i, j] * v[i, j] for i in range(n_i) if (i, j) in seen), v.new_zeros(n_p)) for j in range(n_j)]
        return (torch.stack([pose if norm is None else norm(pose) for pose in poses]),)

    zero = votes.new_zeros(*votes.shape[:-3], *votes.shape[-2:])
    return route_each(one, votes, zero if parents is None else parents)[0]
