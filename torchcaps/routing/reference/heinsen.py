"""Heinsen's routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each


def heinsen_routing(
    votes: Float[Tensor, "*b i j p"],
    score: Float[Tensor, "*b i"],
    *,
    beta_use: Float[Tensor, "#i #j"],
    beta_ignore: Float[Tensor, "#i #j"],
    num_iters: int = 3,
    eps: float = 1e-5,
    model: str = "gaussian",
    sees: Sees | None = None,
) -> Capsules:
    """Heinsen 2019, Algorithm 1. The betas may have one row for all children."""

    def one(v: Tensor, a_in: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = v.shape
        seen = list_seen(sees, n_i, n_j)
        f = [1 / (1 + torch.exp(-a_in[i])) for i in range(n_i)]
        mu, sigma2, a = [], [], []
        for t in range(num_iters):
            r = {}
            for i in range(n_i):  # E-step
                rivals = [j for j in range(n_j) if (i, j) in seen]
                if t == 0:
                    r.update({(i, j): v.new_ones(()) / len(rivals) for j in rivals})
                    continue
                log_p = {}
                for j in rivals:
                    if model == "gaussian":
                        terms = [
                            (v[i, j, p] - mu[j][p]) ** 2 / (2 * sigma2[j][p]) + 0.5 * torch.log(sigma2[j][p])
                            for p in range(n_p)
                        ]
                    else:
                        terms = [(v[i, j, p] - mu[j][p]) ** 2 for p in range(n_p)]
                    log_p[j] = -sum(terms) - torch.log(1 + torch.exp(-a[j]))
                peak = max((float(x.detach()) for x in log_p.values()), default=0.0)
                total = sum(torch.exp(x - peak) for x in log_p.values())
                r.update({(i, j): torch.exp(log_p[j] - peak) / total for j in rivals})
            use = {(i, j): f[i] * r[i, j] for i, j in seen}  # D-step
            ignore = {(i, j): f[i] - use[i, j] for i, j in seen}
            mu, sigma2, a = [], [], []
            for j in range(n_j):  # M-step
                mine = [i for i in range(n_i) if (i, j) in seen]
                gain = {i: beta_use[i if len(beta_use) > 1 else 0, j] for i in mine}
                loss = {i: beta_ignore[i if len(beta_ignore) > 1 else 0, j] for i in mine}
                a.append(sum((gain[i] * use[i, j] - loss[i] * ignore[i, j] for i in mine), v.new_zeros(())))
                total = sum((use[i, j] for i in mine), v.new_zeros(())) + eps
                mean = sum((use[i, j] * v[i, j] for i in mine), v.new_zeros(n_p)) / total
                mu.append(mean)
                squares = sum((use[i, j] * (v[i, j] - mean) ** 2 for i in mine), v.new_zeros(n_p))
                sigma2.append(squares / total + eps)
        return torch.stack(mu), torch.stack(a), torch.stack(sigma2)

    return Capsules(*route_each(one, votes, score))
