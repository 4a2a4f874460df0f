"""The simplest thing that reads hidden states: logistic regression on the mean of a text's last layer.

The other opponent of the capsules, attention pooling, is the model ``attention_pooling``, trained like them.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps.lab.text.cache import Embedded

STEPS = 200
PENALTIES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)


@dataclass(frozen=True)
class LogisticRegression:
    """Weights on standardized features, and what they were standardized by."""

    mean: Float[Tensor, "d"]
    std: Float[Tensor, "d"]
    weight: Float[Tensor, "d k"]
    bias: Float[Tensor, "k"]
    penalty: float

    def logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        return (features - self.mean) / self.std @ self.weight + self.bias

    def correct(self, features: Float[Tensor, "n d"], label: Int[Tensor, "n"]) -> int:
        return int((self.logits(features).argmax(-1) == label).sum())


def pool_mean(states: Embedded) -> Float[Tensor, "n d"]:
    """The mean over a text's tokens of their last layer, in double precision."""
    return torch.stack([states[index][:, -1].double().mean(0) for index in range(len(states))])


def fit_logistic(
    features: Float[Tensor, "n d"], label: Int[Tensor, "n"], classes: int, penalty: float
) -> LogisticRegression:
    """The weights that minimize the cross-entropy plus ``penalty`` times their squares: one minimum, so no seed."""
    mean, std = features.mean(0), features.std(0).clamp_min(1e-6)
    scaled = (features - mean) / std
    weight = features.new_zeros(features.shape[1], classes).requires_grad_()
    bias = features.new_zeros(classes).requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(scaled @ weight + bias, label) + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    return LogisticRegression(mean, std, weight.detach(), bias.detach(), penalty)


def best_logistic(
    train: tuple[Float[Tensor, "n d"], Int[Tensor, "n"]],
    val: tuple[Float[Tensor, "m d"], Int[Tensor, "m"]],
    classes: int,
    penalties: tuple[float, ...] = PENALTIES,
) -> LogisticRegression:
    """The regression whose penalty does best on validation examples; of equals, the strongest."""
    found = [fit_logistic(*train, classes, penalty) for penalty in penalties]
    return max(found, key=lambda one: (one.correct(*val), one.penalty))
