"""EM routing."""

from collections.abc import Sequence
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each


def em_routing(
    votes: Float[Tensor, "*b i j p"],
    score: Float[Tensor, "*b i"],
    *,
    beta_cost: Float[Tensor, "#j"],
    beta_active: Float[Tensor, "#j"],
    num_iters: int = 3,
    inverse_temperature: Sequence[float],
    eps: float,
    sees: Sees | None = None,
) -> Capsules:
    """Hinton 2018, Procedure 1."""

    def one(v: Tensor, a_in: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_h = v.shape
        seen = list_seen(sees, n_i, n_j)
        rivals = {i: [j for j in range(n_j) if (i, j) in seen] for i in range(n_i)}
        r = {(i, j): v.new_ones(()) / len(rivals[i]) for i, j in seen}
        mu, sigma2, a = [], [], []
        for t in range(num_iters):
            mu, sigma2, a = [], [], []
            for j in range(n_j):  # M-step
                mine = [i for i in range(n_i) if (i, j) in seen]
                weight = {i: r[i, j] * torch.sigmoid(a_in[i]) for i in mine}
                total = sum(weight.values(), v.new_zeros(()))
                mean = sum((weight[i] * v[i, j] for i in mine), v.new_zeros(n_h)) / total
                variance = sum((weight[i] * (v[i, j] - mean) ** 2 for i in mine), v.new_zeros(n_h)) / total + eps
                cost = (beta_cost[j] + torch.log(torch.sqrt(variance))) * total
                mu.append(mean)
                sigma2.append(variance)
                a.append(inverse_temperature[t] * (beta_active[j] - cost.sum()))
            for i in range(n_i):  # E-step
                log_p = {}
                for j in rivals[i]:
                    log_p[j] = v.new_zeros(())
                    for h in range(n_h):
                        log_p[j] = log_p[j] - (v[i, j, h] - mu[j][h]) ** 2 / (2 * sigma2[j][h])
                        log_p[j] = log_p[j] - 0.5 * torch.log(2 * pi * sigma2[j][h])
                peak = max((float(x.detach()) for x in log_p.values()), default=0.0)
                weights = {j: torch.sigmoid(a[j]) * torch.exp(log_p[j] - peak) for j in rivals[i]}
                for j in rivals[i]:
                    r[i, j] = weights[j] / sum(weights.values())
        return torch.stack(mu), torch.stack(a), torch.stack(sigma2)

    return Capsules(*route_each(one, votes, score))
