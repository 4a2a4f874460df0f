"""Short trainings of a copy: whether it can learn one batch by heart, and which learning rates it bears."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps.lab.diagnosis.subject import NewOptimizer, Subject

PATIENCE, PROGRESS = 40, 0.002  # steps in which the loss has to fall by such a part


@dataclass(frozen=True)
class Trial:
    """A network that was trained on one batch again and again."""

    lr: float
    losses: tuple[float, ...]  # of the classes, before each step
    accuracies: tuple[float, ...]
    count: int  # examples
    majority: float  # share of the largest class

    @property
    def lead(self) -> float:
        """How much of what a constant answer leaves was learned, at best."""
        return (max(self.accuracies) - self.majority) / max(1 - self.majority, 1e-9)


@dataclass(frozen=True)
class RangeTest:
    """One step after the other, each with a higher learning rate."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]  # before the step of each rate; the last ones are left out once a loss is not finite
    onset: float | None  # the rate at which the loss began to fall; ``None`` where it did not
    highest: float | None  # the rate at which it began to rise again; ``None`` where it did not


def use_adam(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Adam with PyTorch's own settings."""
    return torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=lr)


def learn_by_heart(subject: Subject, lr: float, steps: int, new_optimizer: NewOptimizer = use_adam) -> Trial:
    """Train the subject's network, which is a copy, on its batch until all answers are right, the loss falls no more,
    or the steps are over."""
    optimizer = new_optimizer(subject.model, lr)
    losses: list[float] = []
    accuracies: list[float] = []
    for _ in range(steps + 1):
        found = subject.losses()
        total = found.classes + found.reconstruction
        losses.append(float(found.classes.detach()))
        accuracies.append(float(subject.loss.correct(found.logits.detach(), subject.batch.label).float().mean()))
        if accuracies[-1] == 1.0 or not math.isfinite(float(total.detach())) or not total.requires_grad:
            break
        if len(losses) > PATIENCE and min(losses[-PATIENCE:]) > (1 - PROGRESS) * min(losses[:-PATIENCE]):
            break
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return Trial(lr, tuple(losses), tuple(accuracies), len(subject.batch.label), _majority(subject.batch.label))


def _majority(label: Tensor) -> float:
    """The share of the largest class, or of the commonest set of classes."""
    return float(label.unique(dim=0, return_counts=True)[1].max()) / len(label)


def sweep_rates(
    subject: Subject, low: float, high: float, steps: int, new_optimizer: NewOptimizer = use_adam
) -> RangeTest:
    """Train the subject's network, which is a copy, on its batch with a rate that rises evenly in its logarithm."""
    optimizer = new_optimizer(subject.model, low)
    rates = [low * (high / low) ** (number / (steps - 1)) for number in range(steps)]
    losses: list[float] = []
    for rate in rates:
        found = subject.losses()
        total = found.classes + found.reconstruction
        if not math.isfinite(float(total.detach())) or not total.requires_grad:
            break
        losses.append(float(total.detach()))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return RangeTest(tuple(rates), tuple(losses), *_read_range(rates, losses))


def _read_range(rates: list[float], losses: list[float]) -> tuple[float | None, float | None]:
    """Where the loss begins to fall, by a twentieth of its whole fall, and where it is lowest."""
    if len(losses) < 3:
        return None, rates[len(losses) - 1] if losses else None
    smooth = [sorted(losses[max(0, place - 1) : place + 2])[1] for place in range(1, len(losses) - 1)]
    lowest = min(range(len(smooth)), key=smooth.__getitem__)
    fall = losses[0] - smooth[lowest]
    if fall <= 0.02 * abs(losses[0]):
        return None, rates[len(losses) - 1] if len(losses) < len(rates) else None
    onset = next(rate for rate, loss in zip(rates[1:], smooth, strict=False) if losses[0] - loss >= 0.05 * fall)
    rose = lowest < len(smooth) - 1 or len(losses) < len(rates)
    return onset, rates[lowest + 1] if rose else None
