"""Dynamic routing."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.routing.reference.loops import Sees, list_seen, route_each, squash_vector


def dynamic_routing(
    votes: Float[Tensor, "*b i j p"],
    *,
    num_iters: int = 3,
    prior: Float[Tensor, "#i #j"] | None = None,
    bias: Float[Tensor, "#j #p"] | None = None,
    orphan: bool = False,
    coupling_gradient: bool = True,
    squash: str = "rational",
    sees: Sees | None = None,
) -> Capsules:
    """Sabour 2017, Procedure 1."""

    def one(u: Tensor) -> tuple[Tensor, ...]:
        n_i, n_j, _ = u.shape
        seen = list_seen(sees, n_i, n_j)
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
                    b[i, j] = b[i, j] + torch.dot(u[i, j], squash_vector(s[j], squash)[0])
        poses, scores = zip(*(squash_vector(s_j, squash) for s_j in s), strict=True)
        return torch.stack(poses), torch.stack(scores)

    return Capsules(*route_each(one, votes))
