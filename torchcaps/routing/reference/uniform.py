"""Uniform routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each, squash_rationally


def uniform_routing(votes: Float[Tensor, "*b i j p"], *, over: str = "parents", sees: Sees | None = None) -> Capsules:
    """No routing: every vote for a parent has the same weight."""

    def one(v: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = v.shape
        seen = list_seen(sees, n_i, n_j)
        poses, scores = [], []
        for j in range(n_j):
            s_j = v.new_zeros(n_p)
            for i in range(n_i):
                if (i, j) in seen:
                    rivals = sum((i, k) in seen for k in range(n_j))
                    siblings = sum((k, j) in seen for k in range(n_i))
                    s_j = s_j + v[i, j] / (rivals if over == "parents" else siblings)
            poses.append(squash_rationally(s_j))
            scores.append(torch.log(torch.dot(s_j, s_j)))
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes))
