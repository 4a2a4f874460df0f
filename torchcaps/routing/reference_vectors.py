"""The vector routing of Heinsen 2022 as index loops over children and parents, in the paper's letters.

Never fast, and sharing no code with the fast version, which is held to it in value and in gradient.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def vector_routing(
    x: Float[Tensor, "i d"],
    weights: Mapping[str, Tensor],
    *,
    num_iters: int = 2,
    normalize: bool = True,
    mask: Float[Tensor, "i"] | None = None,
    pairs: Bool[Tensor, "i j"] | None = None,
) -> tuple[Float[Tensor, "j h"], Float[Tensor, "i j"]]:
    """Parents and credit of one sequence.

    ``weights`` are W_A, B_A, W_F1, W_F2, B_F2, W_G1, W_G2, B_G2, W_S, B_S, and of both betas either ``use`` and ``ign``
    for each pair, or ``use_W``, ``use_B``, ``ign_W`` and ``ign_B`` of linear maps, where any number of children share
    the rest.
    """
    w, (n_i, _), (n_j, n_h) = weights, x.shape, weights["B_F2"].shape
    shared = "use" not in w
    own = [0 if shared else i for i in range(n_i)]
    share = [x.new_ones(()) if mask is None else mask[i] for i in range(n_i)]
    goes = [[j for j in range(n_j) if pairs is None or bool(pairs[i, j])] for i in range(n_i)]
    count = sum((share[i] for i in range(n_i) if goes[i]), x.new_zeros(()))
    root = torch.sqrt(torch.maximum(count, x.new_ones(())))
    f_a, v, use, ign = [], {}, {}, {}
    for i in range(n_i):
        a = torch.dot(x[i] / root, w["W_A"][own[i]]) + w["B_A"][own[i]]
        f_a.append(share[i] / (1.0 + torch.exp(-a)))
        for j in range(n_j):
            v[i, j] = torch.stack(
                [torch.dot(x[i] / root * w["W_F1"][j], w["W_F2"][:, h]) + w["B_F2"][j, h] for h in range(n_h)]
            )
            use[i, j] = torch.dot(w["use_W"][j], x[i]) + w["use_B"][j] if shared else w["use"][i, j]
            ign[i, j] = torch.dot(w["ign_W"][j], x[i]) + w["ign_B"][j] if shared else w["ign"][i, j]
    y: list[Tensor] = []
    phi: dict[tuple[int, int], Tensor] = {}
    for t in range(num_iters):
        fit = {}
        for j in range(n_j):
            seen = x.new_zeros(n_h) if t == 0 else _norm(y[j])
            predicted = w["B_G2"][j] + w["W_G2"][j] * sum(
                (seen[h] * w["W_G1"][h] for h in range(n_h)), torch.zeros_like(x[0])
            )
            for i in range(n_i):
                if t == 0:
                    fit[i, j] = x.new_ones(())
                else:
                    z = w["W_S"][own[i], j] * torch.dot(x[i], predicted) + w["B_S"][own[i], j]
                    fit[i, j] = 1.0 / (1.0 + torch.exp(-z))  # softmax of ln σ(z) is σ(z) over its sum
        for i in range(n_i):
            for j in range(n_j):
                phi[i, j] = x.new_zeros(())
            for j in goes[i]:
                r = fit[i, j] / sum((fit[i, k] for k in goes[i]), x.new_zeros(()))
                phi[i, j] = f_a[i] * r * use[i, j] - f_a[i] * (1.0 - r) * ign[i, j]
        y = [sum((phi[i, j] * v[i, j] for i in range(n_i)), x.new_zeros(n_h)) for j in range(n_j)]
    credit = torch.stack([torch.stack([phi[i, j] for j in range(n_j)]) for i in range(n_i)])
    return torch.stack([_norm(each) if normalize else each for each in y]), credit


def _norm(y: Tensor) -> Tensor:
    if len(y) == 1:
        return y
    mean = sum(y, y.new_zeros(())) / len(y)
    variance = sum(((each - mean) ** 2 for each in y), y.new_zeros(())) / len(y)
    return (y - mean) / torch.sqrt(variance + 1e-5)
