"""All routings as their papers write them: index loops over children and parents, one example at a time.

Never fast, and sharing no code with the fast versions: these are what the fast ones are held to, in value and in
gradient. All take votes as a plain tensor ``(*b, i, j, p)``. Where not every parent sees every child (a convolution
written out over its whole grid), ``sees[i, j]`` says who does; elsewhere all do.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import pi

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.capsules import Capsules

Sees = Bool[Tensor, "i j"]


def dynamic_routing(
    votes: Float[Tensor, "*b i j p"],
    *,
    num_iters: int = 3,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    coupling_gradient: bool = True,
    sees: Sees | None = None,
) -> Capsules:
    """Sabour 2017, Procedure 1."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, _ = u.shape
        seen = _seen(sees, n_i, n_j)
        b = {(i, j): u.new_zeros(()) if prior is None else prior[i, j] for i, j in seen}
        s: list[Tensor] = []
        for r in range(num_iters):
            c = {}
            for i in range(n_i):
                rivals = [k for k in range(n_j) if (i, k) in seen]
                total = sum((torch.exp(b[i, k]) for k in rivals), u.new_ones(()) if orphan else u.new_zeros(()))
                for j in rivals:
                    c[i, j] = torch.exp(b[i, j]) / total
                    if not coupling_gradient:
                        c[i, j] = c[i, j].detach()
            s = []
            for j in range(n_j):
                s_j = sum((c[i, j] * u[i, j] for i in range(n_i) if (i, j) in seen), u.new_zeros(u.shape[-1]))
                s.append(s_j if bias is None else s_j + bias[j])
            if r < num_iters - 1:
                for i, j in seen:
                    b[i, j] = b[i, j] + torch.dot(u[i, j], _squash(s[j]))
        return torch.stack([_squash(x) for x in s]), torch.stack([torch.log(torch.dot(x, x)) for x in s])

    return Capsules(*_each(one, votes))


def fixed_point_routing(
    votes: Float[Tensor, "*b i j p"],
    *,
    max_iters: int = 400,
    inverse_temperature: float = 1.0,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    sees: Sees | None = None,
) -> Capsules:
    """Dynamic routing whose logits are the last agreement alone: plain iterations, at most so many, until one changes
    only the last digits. Gradients pass through all of them."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, _ = u.shape
        seen = _seen(sees, n_i, n_j)
        b = {(i, j): u.new_zeros(()) if prior is None else prior[i, j] for i, j in seen}
        s: list[Tensor] = []
        for _ in range(max_iters):
            c = {}
            for i in range(n_i):
                e = {j: torch.exp(b[i, j]) for j in range(n_j) if (i, j) in b}
                total = sum(e.values(), u.new_ones(()) if orphan else u.new_zeros(()))
                c.update({(i, j): e[j] / total for j in e})
            before, s = s, []
            for j in range(n_j):
                s_j = sum((c[i, j] * u[i, j] for i in range(n_i) if (i, j) in c), u.new_zeros(u.shape[-1]))
                s.append(s_j if bias is None else s_j + bias[j])
            if before:
                new, old = torch.stack(s).detach(), torch.stack(before).detach()
                if float((new - old).abs().max()) <= 1e-14 * float(new.abs().max()):
                    break
            for i, j in seen:
                agreement = inverse_temperature * torch.dot(u[i, j], _squash(s[j]))
                b[i, j] = agreement if prior is None else agreement + prior[i, j]
        return torch.stack([_squash(x) for x in s]), torch.stack([torch.log(torch.dot(x, x)) for x in s])

    return Capsules(*_each(one, votes))


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
        seen = _seen(sees, n_i, n_j)
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

    return Capsules(*_each(one, votes, score))


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
        seen = _seen(sees, n_i, n_j)
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

    return Capsules(*_each(one, votes, score))


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
        seen = _seen(sees, n_i, n_j)
        r = {}
        for i in range(n_i):
            agreement = {j: scale * torch.dot(p_j[j], v[i, j]) for j in range(n_j) if (i, j) in seen}
            total = sum(torch.exp(x) for x in agreement.values())
            r.update({(i, j): torch.exp(agreement[j]) / total for j in agreement})
        poses = [sum((r[i, j] * v[i, j] for i in range(n_i) if (i, j) in seen), v.new_zeros(n_p)) for j in range(n_j)]
        return (torch.stack([pose if norm is None else norm(pose) for pose in poses]),)

    zero = votes.new_zeros(*votes.shape[:-3], *votes.shape[-2:])
    return _each(one, votes, zero if parents is None else parents)[0]


def fm_agreement(
    votes: Float[Tensor, "*b i j p"], *, normalize: bool = True, unit_pose: bool = True, sees: Sees | None = None
) -> Capsules:
    """Zhao 2020, Algorithm 1, with every pair of votes multiplied out."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = u.shape
        seen = _seen(sees, n_i, n_j)
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

    return Capsules(*_each(one, votes))


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
        seen = _seen(sees, n_i, n_j)
        z = {(i, j): sum(torch.dot(u[i, j], u[k, j]) for k in range(n_i) if (k, j) in seen) / n_p**0.5 for i, j in seen}
        poses, scores = [], []
        for j in range(n_j):
            s_j = u.new_zeros(n_p)
            for i in range(n_i):
                if (i, j) in seen:
                    c_ij = 1 / sum(torch.exp(z[i, k] - z[i, j]) for k in range(n_j) if (i, k) in seen)
                    b_ij = 0.0 if prior is None else prior[i if len(prior) > 1 else 0, j]
                    s_j = s_j + (c_ij + b_ij) * u[i, j]
            length = torch.sqrt(torch.dot(s_j, s_j))
            if squash == "exponential":
                poses.append((1 - torch.exp(-length)) * s_j / length)
                scores.append(torch.log(torch.exp(length) - 1))
            else:
                poses.append(_squash(s_j))
                scores.append(torch.log(torch.dot(s_j, s_j)))
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*_each(one, votes))


def uniform_routing(votes: Float[Tensor, "*b i j p"], *, over: str = "parents", sees: Sees | None = None) -> Capsules:
    """No routing: every vote for a parent has the same weight."""

    def one(v: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, n_p = v.shape
        seen = _seen(sees, n_i, n_j)
        poses, scores = [], []
        for j in range(n_j):
            s_j = v.new_zeros(n_p)
            for i in range(n_i):
                if (i, j) in seen:
                    rivals = sum((i, k) in seen for k in range(n_j))
                    siblings = sum((k, j) in seen for k in range(n_i))
                    s_j = s_j + v[i, j] / (rivals if over == "parents" else siblings)
            poses.append(_squash(s_j))
            scores.append(torch.log(torch.dot(s_j, s_j)))
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*_each(one, votes))


def _squash(s: Tensor) -> Tensor:
    square = torch.dot(s, s)
    return square / (1 + square) * s / torch.sqrt(square)


def _seen(sees: Tensor | None, n_i: int, n_j: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n_i) for j in range(n_j) if sees is None or bool(sees[i, j])]


def _each(one: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Example by example, whatever the number of batch axes; the first tensor has three axes of its own."""
    batch = tensors[0].shape[:-3]
    flat = [tensor.reshape(-1, *tensor.shape[len(batch) :]) for tensor in tensors]
    results = [one(*(tensor[b] for tensor in flat)) for b in range(len(flat[0]))]
    return tuple(torch.stack(parts).reshape(*batch, *parts[0].shape) for parts in zip(*results, strict=True))
