"""Fixed-point routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each, squash_vector


def fixed_point_routing(
    votes: Float[Tensor, "*b i j p"],
    *,
    max_iters: int = 400,
    inverse_temperature: float = 1.0,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    squash: str = "rational",
    sees: Sees | None = None,
) -> Capsules:
    """Dynamic routing whose logits are the last agreement alone: plain iterations, at most so many, until one changes
    only the last digits. Gradients pass through all of them."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, _ = u.shape
        seen = list_seen(sees, n_i, n_j)
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
                agreement = inverse_temperature * torch.dot(u[i, j], squash_vector(s[j], squash)[0])
                b[i, j] = agreement if prior is None else agreement + prior[i, j]
        poses, scores = zip(*(squash_vector(s_j, squash) for s_j in s), strict=True)
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes))
