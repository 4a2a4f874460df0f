"""Evaluate a model on all examples of a loader: counts, and the figures that follow from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torchcaps.lab.loaders import Loader
from torchcaps.lab.training.scoring import (
    ScoredOutputs,
    balanced_accuracy,
    combine,
    interval,
    majority_share,
    run_model,
)
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss, target_rows
from torchcaps.models import Model

BINS = 15  # of confidence, for the calibration error: as in Guo et al. 2017


@dataclass(frozen=True)
class ClassCounts:
    """One class: how many examples have it, how many were predicted to, and how many of those correctly."""

    name: str
    total: int
    said: int
    hit: int

    @property
    def recall(self) -> float | None:
        """The share of its examples that were found; ``None`` where there are none."""
        return self.hit / self.total if self.total else None

    @property
    def precision(self) -> float | None:
        """The share of what was said that is right; ``None`` where it was never said."""
        return self.hit / self.said if self.said else None


@dataclass(frozen=True)
class Evaluation:
    """Logits and labels of all examples, in their order, and everything that can be counted from them.

    An example is right if all its classes, and no others, are found: with several labels that is the exact match.
    """

    classes: tuple[str, ...]
    logits: Float[Tensor, "n k"]
    label: Int[Tensor, "n"] | Float[Tensor, "n k"]
    loss_function: ClassificationLoss
    step: int = 0  # of training, for losses that change with it

    @property
    def total(self) -> int:
        return len(self.logits)

    @property
    def multi_label(self) -> bool:
        return self.label.ndim == 2

    @property
    def truth(self) -> Bool[Tensor, "n k"]:
        return target_rows(self.label, self.logits) > 0.5

    @property
    def decided(self) -> Bool[Tensor, "n k"]:
        return self.loss_function.decide(self.logits)

    @property
    def right(self) -> Bool[Tensor, "n"]:
        return self.loss_function.correct(self.logits, self.label)

    @property
    def correct(self) -> int:
        return int(self.right.sum())

    @property
    def accuracy(self) -> float:
        """The share of right examples; with several labels, of exact matches."""
        return self.correct / self.total

    @property
    def error(self) -> float:
        return 1 - self.accuracy

    @property
    def interval(self) -> tuple[float, float]:
        """Where the accuracy is, with 95 % confidence."""
        return interval(self.correct, self.total)

    @property
    def error_interval(self) -> tuple[float, float]:
        return interval(self.total - self.correct, self.total)

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the classes' recalls."""
        found = self.per_class()
        return balanced_accuracy([one.hit for one in found], [one.total for one in found])

    @property
    def majority_share(self) -> float | None:
        """The share of the largest class: the accuracy of always answering with it. ``None`` with several labels."""
        return majority_share([one.total for one in self.per_class()], self.total)

    @property
    def losses(self) -> Float[Tensor, "n"]:
        """The loss of each example's classes; reconstructions have no part in it."""
        return self.loss_function.per_example(self.logits, self.label, self.step)

    @property
    def loss(self) -> float:
        return float(self.losses.double().mean())

    @property
    def probabilities(self) -> Float[Tensor, "n k"]:
        return probabilities(self.logits, self.loss_function)

    def per_class(self) -> list[ClassCounts]:
        truth, decided = self.truth, self.decided
        columns = (truth.sum(0), decided.sum(0), (truth & decided).sum(0))
        counts = zip(self.classes, *(column.tolist() for column in columns), strict=True)
        return [ClassCounts(*line) for line in counts]

    def confusion(self) -> Int[Tensor, "k k"] | None:
        """How many examples of each class (row) were taken for each (column); ``None`` with several labels."""
        if self.multi_label or self.loss_function.decision != "argmax":
            return None
        return self.truth.long().T @ self.decided.long()

    def list_confused(self, most: int) -> list[tuple[str, str, int]]:
        """The commonest confusions: the class, what it was taken for and how often; none with several labels."""
        counts = self.confusion()
        if counts is None:
            return []
        wrong = counts.fill_diagonal_(0)
        best = wrong.flatten().topk(min(most, wrong.numel()))
        found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        names, width = self.classes, len(self.classes)
        return [(names[place // width], names[place % width], count) for count, place in found if count]

    def calibration_error(self, bins: int = BINS) -> float:
        """Expected calibration error: how far confidence is from the share of right answers, over bins of confidence.

        The confidence is that of the class decided on; with several labels every class of every example counts.
        """
        if self.multi_label:
            confidence, hit = self.probabilities.flatten(), self.truth.flatten()
        else:
            confidence, hit = self.probabilities.amax(-1), self.right
        place = (confidence * bins).long().clamp_max(bins - 1)
        gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, confidence.double() - hit.double())
        return float(gaps.abs().sum() / len(confidence))

    def brier(self) -> float:
        """Squared difference between probabilities and truth, summed over classes, mean over examples."""
        return float((self.probabilities.double() - self.truth.double()).square().sum(-1).mean())

    def to_json(self) -> dict[str, Any]:
        """All figures, as JSON takes them; shares go from 0 to 1."""
        confusion = self.confusion()
        return {
            "total": self.total,
            "correct": self.correct,
            "accuracy": self.accuracy,
            "error": self.error,
            "interval": list(self.interval),
            "balanced_accuracy": self.balanced_accuracy,
            "majority_share": self.majority_share,
            "multi_label": self.multi_label,
            "loss": self.loss,
            "calibration_error": self.calibration_error(),
            "brier": self.brier(),
            "per_class": [
                vars(counts) | {"recall": counts.recall, "precision": counts.precision} for counts in self.per_class()
            ],
            "confusion": None if confusion is None else confusion.tolist(),
        }


def is_exclusive(loss_function: ClassificationLoss) -> bool:
    """Whether a loss takes exactly one class to be there."""
    return isinstance(loss_function, CrossEntropyLoss)


def probabilities(logits: Float[Tensor, "n k"], loss_function: ClassificationLoss) -> Float[Tensor, "n k"]:
    """Shares of one whole where classes exclude each other in the loss (softmax), else each class's presence."""
    return logits.softmax(-1) if is_exclusive(loss_function) else logits.sigmoid()


def ensemble(evaluations: Sequence[Evaluation]) -> Evaluation:
    """An ensemble: the mean of the probabilities that several models gave for the same examples."""
    first, *others = evaluations
    for other in others:
        if other.classes != first.classes:
            raise ValueError(f"an ensemble needs models of the same classes; got {first.classes} and {other.classes}")
        if other.label.shape != first.label.shape or not torch.equal(other.label, first.label):
            raise ValueError(
                f"an ensemble needs the same examples; got {first.total} and {other.total}, or others in their place"
            )
        if is_exclusive(other.loss_function) != is_exclusive(first.loss_function):
            raise ValueError("an ensemble needs probabilities of one kind; one model has a softmax and one has not")
    logits = combine([each.logits for each in evaluations], first.loss_function)
    return Evaluation(first.classes, logits, first.label, first.loss_function, first.step)


Progress = Callable[[int, int], object]
"""Told after every batch how many examples are done, and how many there are."""


def evaluate(
    model: Model,
    loader: Loader,
    loss: ClassificationLoss,
    *,
    batch_size: int = 128,
    indices: Int[Tensor, "n"] | None = None,
    step: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Every example once, or those of ``indices``; where the loader has several crops of each, their probabilities are
    averaged. The last batch is as small as it happens to be; nothing is counted twice."""

    def watch(outputs: ScoredOutputs, done: int, total: int) -> None:
        _check_classes(outputs.logits, outputs.label, loader)
        if progress is not None:
            progress(done, total)

    found = run_model(model, loader, loss, batch_size=batch_size, indices=indices, watch=watch)
    if found is None:
        raise ValueError("there is nothing to evaluate: the dataset has no examples")
    return Evaluation(loader.classes, found.logits, found.label, loss, step)


def _check_classes(logits: Float[Tensor, "n k"], label: Tensor, loader: Loader) -> None:
    known = logits.shape[-1]
    if len(loader.classes) != known or (label.ndim == 2 and label.shape[1] != known):
        raise ValueError(f"this model tells {known} classes apart; the data has {len(loader.classes)}")
