"""Self-attention routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each, squash_vector


def self_attention_routing(
    votes: Float[Tensor, "*b i j p"],
    *,
    prior: Float[Tensor, "#i #j"] | None = None,
    squash: str = "exponential",
    sees: Sees | None = None,
) -> Capsules:
    """Mazzia 2021: attention of every vote to every other for the same parent. The prior may have one row for all
    children."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = u.shape
        seen = list_seen(sees, n_i, n_j)
        z = {(i, j): sum(torch.dot(u[i, j], u[k, j]) for k in range(n_i) if (k, j) in seen) / n_p**0.5 for i, j in seen}
        poses, scores = [], []
        for j in range(n_j):
            s_j = u.new_zeros(n_p)
            for i in range(n_i):
                if (i, j) in seen:
                    c_ij = 1 / sum(torch.exp(z[i, k] - z[i, j]) for k in range(n_j) if (i, k) in seen)
                    b_ij = 0.0 if prior is None else prior[i if len(prior) > 1 else 0, j]
                    s_j = s_j + (c_ij + b_ij) * u[i, j]
            pose, score = squash_vector(s_j, squash)
            poses.append(pose)
            scores.append(score)
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes))
