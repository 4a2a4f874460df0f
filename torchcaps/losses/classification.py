"""Losses on class logits, each with the rule by which it decides.

All take logits ``(b, k)`` and targets that are class numbers ``(b,)``, or a row for each example ``(b, k)``: ones for
the classes that are there, or shares of mixed images.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torchcaps.losses.precision import at_least_float32

Logits = Float[Tensor, "b k"]
Target = Int[Tensor, "b"] | Float[Tensor, "b k"]
Decision = Literal["argmax", "two_most_active", "threshold"]


def target_rows(target: Target, logits: Logits) -> Float[Tensor, "b k"]:
    """Targets as rows: class numbers become rows with a single one.

    Args:
        target: class numbers, or rows already.
        logits: the logits that they belong to.

    Shape:
        - target: ``(b,)`` or ``(b, k)``; logits: ``(b, k)``.

    Returns:
        Rows ``(b, k)`` in the number type of the logits.

    Example:
        >>> target_rows(torch.tensor([2]), torch.zeros(1, 3))
        tensor([[0., 0., 1.]])
    """
    if target.ndim == 1 and not target.is_floating_point():
        if target.shape[0] != logits.shape[0]:
            raise ValueError(f"{target.shape[0]} class numbers for {logits.shape[0]} rows of logits")
        return F.one_hot(target, logits.shape[-1]).to(logits.dtype)
    if target.shape != logits.shape:
        raise ValueError(
            f"target of shape {tuple(target.shape)} and type {target.dtype}; expected class numbers "
            f"({logits.shape[0]},) or rows {tuple(logits.shape)}"
        )
    return target.to(logits.dtype)


def decide(logits: Logits, rule: Decision = "argmax", *, threshold: float = 0.5) -> Bool[Tensor, "b k"]:
    """Which classes are predicted: the best one, the best two, or all whose presence is above a threshold.

    Args:
        logits: a logit for each class.
        rule: ``"argmax"``, ``"two_most_active"`` or ``"threshold"``.
        threshold: the presence, 0 to 1, above which a class is there.

    Shape:
        - logits: ``(b, k)``; the result has the same shape.

    Returns:
        True for the classes that are predicted.

    Example:
        >>> decide(torch.tensor([[3.0, -1.0, 2.0]]), "two_most_active")
        tensor([[ True, False,  True]])
    """
    if rule == "threshold":
        return logits.sigmoid() > threshold
    if rule not in ("argmax", "two_most_active"):
        raise ValueError(f"no decision {rule!r}; there are 'argmax', 'two_most_active' and 'threshold'")
    best = logits.topk(1 if rule == "argmax" else 2, dim=-1).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best, True)


class ClassificationLoss(nn.Module):
    """A loss on logits and a rule of decision: ``loss(logits, target)`` is the mean over the batch.

    A subclass overrides ``per_example``.

    Args:
        decision: how classes are predicted: ``"argmax"``, ``"two_most_active"`` or ``"threshold"``.
        threshold: the presence, 0 to 1, above which a class is there.
    """

    multi_label: ClassVar[bool] = False
    """Whether an example may have several classes."""

    def __init__(self, decision: Decision = "argmax", threshold: float = 0.5) -> None:
        super().__init__()
        self.decision: Decision = decision
        self.threshold = threshold

    def extra_repr(self) -> str:
        threshold = f", threshold={self.threshold}" if self.decision == "threshold" else ""
        return f"decision={self.decision!r}{threshold}"

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        """The loss of each example.

        Args:
            logits: a logit for each class.
            target: class numbers, or rows with a one or a share for each class.
            step: number of the training step, for losses that change while training goes on.

        Returns:
            A loss for each example.
        """
        raise NotImplementedError

    def forward(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, ""]:
        """The mean loss of a batch.

        Args:
            logits: a logit for each class.
            target: class numbers, or rows with a one or a share for each class.
            step: number of the training step, for losses that change while training goes on.

        Returns:
            The mean over the batch.
        """
        return self.per_example(at_least_float32(logits), target, step).mean()

    def decide(self, logits: Logits) -> Bool[Tensor, "b k"]:
        """Which classes are predicted, by the rule of this loss.

        Args:
            logits: a logit for each class.

        Returns:
            True for the classes that are predicted.
        """
        return decide(logits, self.decision, threshold=self.threshold)

    def correct(self, logits: Logits, target: Target) -> Bool[Tensor, "b"]:
        """Whether all classes of an example, and no others, were predicted.

        Args:
            logits: a logit for each class.
            target: class numbers, or rows with a one for each class.

        Returns:
            True for each example that is correct.
        """
        return (self.decide(logits) == (target_rows(target, logits) > 0.5)).all(-1)


class MarginLoss(ClassificationLoss):
    """Sabour 2017, Eq. 4: every present class should reach ``upper``, every absent one stay below ``lower``.

    Args:
        upper: what the activation of a class that is there should reach (m⁺).
        lower: what that of any other should stay below (m⁻).
        absent: weight of the classes that are not there (λ).
        on: what the activation is: ``"presence"``, or the ``"score"`` itself, as Zhao 2020 has it with â (Eq. 9).
        decision: how classes are predicted: ``"argmax"``, ``"two_most_active"`` or ``"threshold"``.
        threshold: the presence, 0 to 1, above which a class is there.

    Shape:
        - logits: ``(b, k)``; target: class numbers ``(b,)`` or rows ``(b, k)``.

    Returns:
        The mean over the batch.

    Example:
        >>> MarginLoss()(torch.tensor([[9.0, -9.0]]), torch.tensor([0])).item()
        0.0
    """

    multi_label = True

    def __init__(
        self,
        upper: float = 0.9,
        lower: float = 0.1,
        absent: float = 0.5,
        *,
        on: Literal["presence", "score"] = "presence",
        decision: Decision = "argmax",
        threshold: float = 0.5,
    ) -> None:
        super().__init__(decision, threshold)
        if on not in ("presence", "score"):
            raise ValueError(f"margin loss on {on!r}; there are 'presence' and 'score'")
        self.upper, self.lower, self.absent, self.on = upper, lower, absent, on

    def extra_repr(self) -> str:
        margins = f"upper={self.upper}, lower={self.lower}, absent={self.absent}, on={self.on!r}"
        return f"{margins}, {super().extra_repr()}"

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        there = target_rows(target, logits)  # T_k
        activation = logits.sigmoid() if self.on == "presence" else logits
        missed = (self.upper - activation).clamp_min(0).square()
        invented = (activation - self.lower).clamp_min(0).square()
        return (there * missed + self.absent * (1.0 - there) * invented).sum(-1)


def rising_margin(step: int, start: float = 0.2, rise: float = 0.79, stretch: float = 50_000.0) -> float:
    """The margin of the spread loss over training: a sigmoid of the step from about 0.2 to 0.99, as the authors' code
    has it; the paper says from 0.2 to 0.9.

    Args:
        step: number of the training step.
        start: the margin far before the rise.
        rise: how much it rises.
        stretch: steps in which the sigmoid goes on by one; its middle is at four times as many.

    Returns:
        The margin.

    Example:
        >>> round(rising_margin(0), 3), round(rising_margin(10**6), 3)
        (0.214, 0.99)
    """
    slope = min(10.0, step / stretch - 4.0)
    return start + rise / (1.0 + math.exp(-slope))


def linear_margin(step: int, steps: int, start: float = 0.2, end: float = 0.9) -> float:
    """The margin that rises evenly and then stays.

    Args:
        step: number of the training step.
        steps: steps of the rise.
        start: the margin of the first step.
        end: the margin from ``steps`` on.

    Returns:
        The margin.

    Example:
        >>> round(linear_margin(50, 100), 3), round(linear_margin(200, 100), 3)
        (0.55, 0.9)
    """
    return start + (end - start) * min(1.0, step / steps)


class SpreadLoss(ClassificationLoss):
    """Hinton 2018: the presence of the target class should be ahead of every other by a margin that grows.

    Args:
        margin: a margin that stays; left out, it is ``rising_margin(step)``.
        steps: training steps over which it rises evenly instead.

    Shape:
        - logits: ``(b, k)``; target: class numbers ``(b,)`` or rows ``(b, k)``.

    Returns:
        The mean over the batch.

    Example:
        >>> SpreadLoss(margin=0.5)(torch.tensor([[9.0, -9.0]]), torch.tensor([0])).item()
        0.0
    """

    def __init__(self, margin: float | None = None, *, steps: int | None = None) -> None:
        super().__init__("argmax")
        if margin is not None and steps is not None:
            raise ValueError(f"a fixed margin ({margin}) does not rise over {steps} steps; give one of the two")
        self.margin, self.steps = margin, steps

    def extra_repr(self) -> str:
        given = {"margin": self.margin, "steps": self.steps}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)

    def margin_at(self, step: int) -> float:
        """The margin of one training step.

        Args:
            step: number of the training step.

        Returns:
            The margin.
        """
        if self.margin is not None:
            return self.margin
        return rising_margin(step) if self.steps is None else linear_margin(step, self.steps)

    def per_example(self, logits: Logits, target: Target, step: int = 0) -> Float[Tensor, "b"]:
        there = target_rows(target, logits)
        presence = logits.sigmoid()
        ahead = (there * presence).sum(-1, keepdim=True) - presence  # a_t - a_i
        short = (self.margin_at(step) - ahead).clamp_min(0).square()
        return ((1.0 - there) * short).sum(-1)
