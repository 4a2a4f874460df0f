"""Self-routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_beside, list_seen, route_each


def self_routing(
    votes: Float[Tensor, "*b i j p"],
    score: Float[Tensor, "*b i"],
    *,
    logits: Float[Tensor, "*b i j"],
    sees: Sees | None = None,
    types: int | None = None,
) -> Capsules:
    """Hahn 2019, Eqs. 1 to 4. Presences are shares among the parents of one position, so many ``types`` in a row; all
    parents if left out."""

    def one(v: Tensor, a_in: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = v.shape
        seen = list_seen(sees, n_i, n_j)
        mine = {j: [i for i in range(n_i) if (i, j) in seen] for j in range(n_j)}
        c = {}
        for i in range(n_i):
            total = sum((torch.exp(b[i, k]) for k in range(n_j) if (i, k) in seen), v.new_zeros(()))
            c.update({(i, j): torch.exp(b[i, j]) / total for j in range(n_j) if (i, j) in seen})
        won = [sum((torch.sigmoid(a_in[i]) * c[i, j] for i in mine[j]), v.new_zeros(())) for j in range(n_j)]
        poses, scores = [], []
        for j in range(n_j):
            mixed = sum((torch.sigmoid(a_in[i]) * c[i, j] * v[i, j] for i in mine[j]), v.new_zeros(n_p))
            poses.append(mixed / won[j])
            rivals = sum((won[k] for k in list_beside(j, n_j, types) if k != j), v.new_zeros(()))
            scores.append(torch.log(won[j]) - torch.log(rivals))
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes, score, logits))
