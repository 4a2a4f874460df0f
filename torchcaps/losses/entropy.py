"""Losses that are negative logarithms of probabilities."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import log_sigmoid
from torchcaps.losses.classification import ClassificationLoss, Decision, Logits, Target, target_rows


class CrossEntropyLoss(ClassificationLoss):
    """Softmax cross-entropy: one class, or shares of several in a mixed image.

    Args:
        on: what the softmax is taken of: the ``"score"``, or the ``"presence"``, as the code of Ribeiro 2020 has it.

    Shape:
        - logits: ``(b, k)``; target: class numbers ``(b,)`` or rows ``(b, k)``.

    Returns:
        The mean over the batch.

    Example:
        >>> import torch
        >>> round(CrossEntropyLoss()(torch.zeros(1, 2), torch.tensor([0])).item(), 4)
        0.6931
    """

    def __init__(self, *, on: Literal["presence", "score"] = "score") -> None:
        super().__init__("argmax")
        if on not in ("presence", "score"):
            raise ValueError(f"cross-entropy on {on!r}; there are 'presence' and 'score'")
        self.on = on

    def extra_repr(self) -> str:
        return f"on={self.on!r}, {super().extra_repr()}"

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        activation = logits.sigmoid() if self.on == "presence" else logits
        return F.cross_entropy(activation, target_rows(target, logits), reduction="none")


class NLLLoss(ClassificationLoss):
    """The negative logarithm of the target class's presence, for presences that sum to one over the classes, as those
    of self-routing do (Hahn 2019).

    Shape:
        - logits: ``(b, k)``; target: class numbers ``(b,)`` or rows ``(b, k)``.

    Returns:
        The mean over the batch.

    Example:
        >>> import torch
        >>> round(NLLLoss()(torch.zeros(1, 2), torch.tensor([0])).item(), 4)
        0.6931
    """

    def __init__(self) -> None:
        super().__init__("argmax")

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        return -(target_rows(target, logits) * log_sigmoid(logits)).sum(-1)


class BinaryCrossEntropyLoss(ClassificationLoss):
    """Sigmoid cross-entropy of every class by itself, summed over the classes: any number of them may be there.

    Args:
        decision: how classes are predicted: ``"argmax"``, ``"two_most_active"`` or ``"threshold"``.
        threshold: the presence, 0 to 1, above which a class is there.

    Shape:
        - logits: ``(b, k)``; target: class numbers ``(b,)`` or rows ``(b, k)``.

    Returns:
        The mean over the batch.

    Example:
        >>> import torch
        >>> round(BinaryCrossEntropyLoss()(torch.zeros(1, 2), torch.tensor([[1.0, 1.0]])).item(), 4)
        1.3863
    """

    multi_label = True

    def __init__(self, decision: Decision = "threshold", threshold: float = 0.5) -> None:
        super().__init__(decision, threshold)

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        rows = target_rows(target, logits)
        return F.binary_cross_entropy_with_logits(logits, rows, reduction="none").sum(-1)
