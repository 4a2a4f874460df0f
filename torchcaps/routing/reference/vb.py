"""Variational Bayes routing."""

from math import e, log, pi

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_beside, list_seen, route_each


def vb_routing(
    votes: Float[Tensor, "*b i j p"],
    score: Float[Tensor, "*b i"],
    *,
    beta_use: Float[Tensor, "#j"],
    beta_active: Float[Tensor, "#j"],
    num_iters: int = 3,
    prior_alpha: float = 1.0,
    prior_kappa: float = 1.0,
    prior_nu: float | None = None,
    prior_mean: float = 0.0,
    prior_psi: float = 1.0,
    start: str = "seen",
    sees: Sees | None = None,
    types: int | None = None,
) -> Capsules:
    """Ribeiro 2020, Algorithm 1 with diagonal precisions. The mixture is that of the parents of one position, so many
    ``types`` in a row; all parents if left out."""

    def one(v: Tensor, a_in: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_d = v.shape
        seen = list_seen(sees, n_i, n_j)
        mine = {j: [i for i in range(n_i) if (i, j) in seen] for j in range(n_j)}
        rivals = {i: [j for j in range(n_j) if (i, j) in seen] for i in range(n_i)}
        nu_0 = n_d + 1.0 if prior_nu is None else prior_nu
        r = {
            (i, j): v.new_ones(()) / len(list_beside(j, n_j, types) if start == "types" else rivals[i]) for i, j in seen
        }
        m, phi, nu, a = [], [], [], []
        for t in range(num_iters):
            used = {(i, j): r[i, j] * torch.sigmoid(a_in[i]) for i, j in seen}
            n = [sum((used[i, j] for i in mine[j]), v.new_zeros(())) for j in range(n_j)]
            alpha = [prior_alpha + n[j] for j in range(n_j)]
            kappa = [prior_kappa + n[j] for j in range(n_j)]
            nu = [nu_0 + n[j] for j in range(n_j)]
            m, phi, a, ln_pi, ln_lambda = [], [], [], [], []
            for j in range(n_j):
                mu = sum((used[i, j] * v[i, j] for i in mine[j]), v.new_zeros(n_d)) / n[j]
                m.append((prior_kappa * prior_mean + n[j] * mu) / kappa[j])
                spread = sum((used[i, j] * (v[i, j] - mu) ** 2 for i in mine[j]), v.new_zeros(n_d))
                shift = prior_kappa * n[j] / kappa[j] * (mu - prior_mean) ** 2
                phi.append(prior_psi + spread + shift)
                freedom = sum((torch.digamma((nu[j] - k) / 2) for k in range(n_d)), v.new_zeros(()))
                ln_lambda.append(freedom + n_d * log(2) - sum(torch.log(phi[j][p]) for p in range(n_d)))
                total = sum((alpha[k] for k in list_beside(j, n_j, types)), v.new_zeros(()))
                ln_pi.append(torch.digamma(alpha[j]) - torch.digamma(total))
                entropy = 0.5 * n_d * log(2 * pi * e) - 0.5 * ln_lambda[j]
                a.append(beta_active[j] - (beta_use[j] + torch.exp(ln_pi[j]) * entropy))
            if t == num_iters - 1:
                break
            for i in range(n_i):
                ln_rho = {}
                for j in rivals[i]:
                    squares = sum((v[i, j, p] - m[j][p]) ** 2 / phi[j][p] for p in range(n_d))
                    expected = n_d / kappa[j] + nu[j] * squares
                    ln_rho[j] = ln_pi[j] + 0.5 * ln_lambda[j] - 0.5 * n_d * log(2 * pi) - 0.5 * expected
                peak = max((float(x.detach()) for x in ln_rho.values()), default=0.0)
                rho = {j: torch.exp(ln_rho[j] - peak) for j in rivals[i]}
                r.update({(i, j): rho[j] / sum(rho.values()) for j in rivals[i]})
        variance = [phi[j] / nu[j] for j in range(n_j)]
        return torch.stack(m), torch.stack(a), torch.stack(variance)

    return Capsules(*route_each(one, votes, score))
