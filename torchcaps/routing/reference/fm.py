"""FM agreement."""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each


def fm_agreement(
    votes: Float[Tensor, "*b i j p"], *, normalize: bool = True, unit_pose: bool = True, sees: Sees | None = None
) -> Capsules:
    """Zhao 2020, Algorithm 1, with every pair of votes multiplied out."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = u.shape
        seen = list_seen(sees, n_i, n_j)
        poses, scores = [], []
        for j in range(n_j):
            mine = [u[i, j] for i in range(n_i) if (i, j) in seen]
            if normalize:
                mine = [x / torch.sqrt(torch.dot(x, x)) for x in mine]
            s = u.new_zeros(n_p)
            for first, second in product(range(len(mine)), repeat=2):
                if first < second:
                    s = s + mine[first] * mine[second]
            s = s / len(mine) if normalize else s
            poses.append(s / torch.sqrt(torch.dot(s, s)) if unit_pose else s)
            scores.append(s.sum())
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes))
