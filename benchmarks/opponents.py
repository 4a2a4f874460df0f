"""What the fast routings are measured against: the same results in the way that published code usually gets them.

Each builds the whole tensor of votes and lets autograd keep whatever it needs.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor


def squash(total: Tensor) -> Tensor:
    squares = total.square().sum(-1, keepdim=True)
    return squares / (1.0 + squares) * total / squares.sqrt()


def heinsen_literal(
    score: Float[Tensor, "b i"],
    pose: Float[Tensor, "b i c d"],
    weight: Float[Tensor, "t j d h"],
    bias: Float[Tensor, "t j c h"],
    beta_use: Tensor,
    beta_ignore: Tensor,
    num_iters: int = 3,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Heinsen's Algorithm 1, formula by formula on the votes ``(b, i, j, c, h)``; weights may have an ``i`` of 1."""
    pairs = torch.broadcast_to(weight, (pose.shape[1], *weight.shape[1:]))
    votes = torch.einsum("ijdh,bicd->bijch", pairs, pose) + bias
    presence = score.sigmoid().unsqueeze(-1)
    mean = variance = parent_score = torch.empty(0)
    for iteration in range(num_iters):
        if iteration == 0:
            routing = torch.full_like(votes[..., 0, 0], 1.0 / votes.shape[2])
        else:
            deviation = (votes - mean.unsqueeze(1)).square()
            log_density = -torch.einsum("bijch,bjch->bij", deviation, 0.5 / variance)
            log_density = log_density - variance.sqrt().log().sum((-2, -1)).unsqueeze(1)
            routing = (F.logsigmoid(parent_score).unsqueeze(1) + log_density).softmax(-1)
        used = presence * routing
        ignored = presence - used
        parent_score = (beta_use * used).sum(1) - (beta_ignore * ignored).sum(1)
        per_mass = 1.0 / (used.sum(1) + eps)
        mean = torch.einsum("bij,bijch,bj->bjch", used, votes, per_mass)
        deviation = (votes - mean.unsqueeze(1)).square()
        variance = torch.einsum("bij,bijch,bj->bjch", used, deviation, per_mass) + eps
    return parent_score, mean, variance


def dynamic_broadcast(pose: Float[Tensor, "b i d"], weight: Float[Tensor, "i j d h"], num_iters: int = 3) -> Tensor:
    """Dynamic routing by broadcasting products over the votes ``(b, i, j, h)``."""
    votes = (weight.mT @ pose[:, :, None, :, None]).squeeze(-1)
    logits = torch.zeros_like(votes[..., 0])
    parent = votes
    for iteration in range(num_iters):
        coupling = logits.softmax(-1)
        parent = squash((coupling.unsqueeze(-1) * votes).sum(1))
        if iteration < num_iters - 1:
            logits = logits + (votes * parent.unsqueeze(1)).sum(-1)
    return parent


def dynamic_einsum(pose: Float[Tensor, "b i d"], weight: Float[Tensor, "i j d h"], num_iters: int = 3) -> Tensor:
    """Dynamic routing in plain einsums over the votes ``(b, i, j, h)``."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    logits = torch.zeros_like(votes[..., 0])
    parent = votes
    for iteration in range(num_iters):
        parent = squash(torch.einsum("bij,bijh->bjh", logits.softmax(-1), votes))
        if iteration < num_iters - 1:
            logits = logits + torch.einsum("bijh,bjh->bij", votes, parent)
    return parent


def unfolded_votes(
    pose: Float[Tensor, "b row column t cd"], weight: Float[Tensor, "k k t j d h"], stride: int
) -> Float[Tensor, "n i j p"]:
    """The votes of every receptive field of a convolution with matrix poses, all at once."""
    kernel, rows = weight.shape[0], weight.shape[4]
    fields = pose.unfold(1, kernel, stride).unfold(2, kernel, stride)
    fields = rearrange(fields, "b y x t (c d) k l -> (b y x) (k l t) 1 c d", c=rows)
    return (fields @ rearrange(weight, "k l t j d h -> (k l t) j d h")).flatten(-2)


def unfolded_poses(pose: Float[Tensor, "b row column t cd"], kernel: int, stride: int) -> Float[Tensor, "n i cd"]:
    """The poses of the children of every receptive field."""
    fields = pose.unfold(1, kernel, stride).unfold(2, kernel, stride)
    return rearrange(fields, "b y x t cd k l -> (b y x) (k l t) cd")


def unfolded_scores(score: Float[Tensor, "b row column t"], kernel: int, stride: int) -> Float[Tensor, "n i"]:
    fields = score.unfold(1, kernel, stride).unfold(2, kernel, stride)
    return rearrange(fields, "b y x t k l -> (b y x) (k l t)")


def em_literal(
    votes: Float[Tensor, "n i j p"],
    score: Float[Tensor, "n i"],
    beta_cost: Tensor,
    beta_active: Tensor,
    inverse_temperature: tuple[float, ...],
    eps: float,
) -> tuple[Tensor, Tensor]:
    """EM routing by broadcasting over the votes, every receptive field alone."""
    coupling = torch.full_like(votes[..., 0], 1.0 / votes.shape[2])
    mean = parent_score = torch.empty(0)
    for iteration, inverse in enumerate(inverse_temperature):
        used = (coupling * score.sigmoid().unsqueeze(-1)).unsqueeze(-1)
        mass = used.sum(1)
        mean = (used * votes).sum(1) / mass
        variance = (used * (votes - mean.unsqueeze(1)) ** 2).sum(1) / mass + eps
        cost = (beta_cost.unsqueeze(-1) + 0.5 * variance.log()) * mass
        parent_score = inverse * (beta_active - cost.sum(-1))
        if iteration < len(inverse_temperature) - 1:
            log_density = -((votes - mean.unsqueeze(1)) ** 2 / (2.0 * variance.unsqueeze(1))).sum(-1)
            log_density = log_density - 0.5 * variance.log().sum(-1).unsqueeze(1)
            coupling = (F.logsigmoid(parent_score).unsqueeze(1) + log_density).softmax(-1)
    return mean, parent_score


def inverted_attention_literal(votes: Float[Tensor, "n i j p"], parents: Float[Tensor, "n j p"]) -> Tensor:
    """One inverted-attention step by einsums over the votes, every receptive field alone."""
    agreement = torch.einsum("nijp,njp->nij", votes, parents) * votes.shape[-1] ** -0.5
    return torch.einsum("nij,nijp->njp", agreement.softmax(-1), votes)


def one_pass(pose: Float[Tensor, "b i d"], weight: Float[Tensor, "i j d h"]) -> Tensor:
    """Dense votes, built, and one weighted sum over them: the least that a routing over a tensor of votes does."""
    return dynamic_broadcast(pose, weight, num_iters=1)


def em_einsum(
    pose: Tensor,
    weight: Tensor,
    score: Tensor,
    beta_cost: Tensor,
    beta_active: Tensor,
    inverse_temperature: tuple[float, ...],
    eps: float = 5e-4,
) -> tuple[Tensor, Tensor]:
    """EM routing of a dense layer in plain einsums over the votes ``(b, i, j, h)``."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    presence = score.sigmoid().unsqueeze(-1)
    coupling = torch.full_like(votes[..., 0], 1.0 / votes.shape[2])
    mean = parent_score = torch.empty(0)
    for iteration, inverse in enumerate(inverse_temperature):
        used = coupling * presence
        mass = used.sum(1).unsqueeze(-1)
        mean = torch.einsum("bij,bijh->bjh", used, votes) / mass
        deviation = (votes - mean.unsqueeze(1)).square()
        variance = torch.einsum("bij,bijh->bjh", used, deviation) / mass + eps
        cost = (beta_cost.unsqueeze(-1) + 0.5 * variance.log()) * mass
        parent_score = inverse * (beta_active - cost.sum(-1))
        if iteration < len(inverse_temperature) - 1:
            log_density = -torch.einsum("bijh,bjh->bij", deviation, 0.5 / variance)
            log_density = log_density - 0.5 * variance.log().sum(-1).unsqueeze(1)
            coupling = (F.logsigmoid(parent_score).unsqueeze(1) + log_density).softmax(-1)
    return mean, parent_score


def inverted_attention_einsum(pose: Tensor, weight: Tensor, num_iters: int = 2) -> Tensor:
    """Inverted attention of a dense layer in plain einsums over the votes ``(b, i, j, h)``."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    size = votes.shape[-1:]
    parents = F.layer_norm(votes.sum(1) / votes.shape[2], size)
    for _ in range(num_iters - 1):
        agreement = torch.einsum("bijh,bjh->bij", votes, parents) * size[0] ** -0.5
        parents = F.layer_norm(torch.einsum("bij,bijh->bjh", agreement.softmax(-1), votes), size)
    return parents


def fm_einsum(pose: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """FM agreement of a dense layer over the votes ``(b, i, j, h)``."""
    votes = F.normalize(torch.einsum("bid,ijdh->bijh", pose, weight), dim=-1)
    total = 0.5 * (votes.sum(1).square() - votes.square().sum(1)) / votes.shape[1]
    return F.normalize(total, dim=-1), total.sum(-1)


def uniform_einsum(pose: Tensor, weight: Tensor) -> Tensor:
    """A dense layer whose votes all have the same weight: one einsum, without votes."""
    return squash(torch.einsum("bid,ijdh->bjh", pose, weight) / weight.shape[1])


def self_attention_einsum(pose: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
    """Self-attention routing of a dense layer in plain einsums over the votes ``(b, i, j, h)``."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    agreement = torch.einsum("bijh,bjh->bij", votes, votes.sum(1)) * votes.shape[-1] ** -0.5
    total = torch.einsum("bij,bijh->bjh", agreement.softmax(-1) + prior, votes)
    length = total.norm(dim=-1, keepdim=True)
    return (1.0 - (-length).exp()) * total / length


def fixed_point_einsum(pose: Tensor, weight: Tensor, max_iters: int = 100) -> Tensor:
    """Dynamic routing of a dense layer to convergence in plain einsums: iterate without gradients until nothing changes
    beyond single precision, then go on with gradients for as many iterations again."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    tolerance = torch.finfo(votes.dtype).eps ** 0.75

    def step(total: Tensor) -> Tensor:
        coupling = torch.einsum("bijh,bjh->bij", votes, squash(total)).softmax(-1)
        return torch.einsum("bij,bijh->bjh", coupling, votes)

    total = votes.sum(1) / votes.shape[2]
    made, change = 0, torch.inf
    with torch.no_grad():
        while made < max_iters and change > tolerance:
            before, total, made = total, step(total), made + 1
            change = float((total - before).abs().max() / total.abs().max())
    for _ in range(made if torch.is_grad_enabled() and votes.requires_grad else 1):
        total = step(total)
    return squash(total)


def self_routing_einsum(pose: Tensor, weight: Tensor, score: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    """Self-routing of a dense layer in plain einsums over the votes ``(b, i, j, h)``, with presences of all parents."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    coupling = torch.einsum("bid,ijd->bij", pose, gates).softmax(-1)
    used = score.sigmoid().unsqueeze(-1) * coupling
    mass = used.sum(1)
    mean = torch.einsum("bij,bijh->bjh", used, votes) / mass.unsqueeze(-1)
    return mean, torch.logit(mass / mass.sum(-1, keepdim=True))


def vb_einsum(
    pose: Tensor, weight: Tensor, score: Tensor, beta_use: Tensor, beta_active: Tensor, num_iters: int = 3
) -> tuple[Tensor, Tensor]:
    """Variational Bayes routing of a dense layer, formula by formula on the votes ``(b, i, j, h)``."""
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    size = votes.shape[-1]
    presence = score.sigmoid().unsqueeze(-1)
    coupling = torch.full_like(votes[..., 0], 1.0 / votes.shape[2])
    mean = parent_score = coupling
    for iteration in range(num_iters):
        used = presence * coupling
        mass = used.sum(1)
        alpha, freedom = 1.0 + mass, size + 1.0 + mass
        center = torch.einsum("bij,bijh->bjh", used, votes) / mass.unsqueeze(-1)
        pull = (mass / alpha).unsqueeze(-1)
        mean = pull * center
        deviation = (votes - center.unsqueeze(1)).square()
        scale = 1.0 + torch.einsum("bij,bijh->bjh", used, deviation) + pull * center.square()
        halves = 0.5 * (freedom.unsqueeze(-1) - torch.arange(size, dtype=votes.dtype))
        log_precision = torch.digamma(halves).sum(-1) + size * math.log(2.0) - scale.log().sum(-1)
        log_share = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))
        entropy = 0.5 * size * math.log(2.0 * math.pi * math.e) - 0.5 * log_precision
        parent_score = beta_active - beta_use - log_share.exp() * entropy
        if iteration < num_iters - 1:
            squares = torch.einsum("bijh,bjh->bij", (votes - mean.unsqueeze(1)).square(), 1.0 / scale)
            log_density = log_share + 0.5 * log_precision - 0.5 * size / alpha
            coupling = (log_density.unsqueeze(1) - 0.5 * freedom.unsqueeze(1) * squares).softmax(-1)
    return mean, parent_score
