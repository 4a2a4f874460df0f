"""How well a model does, as counts that add up over batches and processes, and whether that is better than chance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps.lab.diagnosis.findings import PAGE, Outcome
from torchcaps.lab.loaders import Loader, views
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss, MarginLoss, target_rows
from torchcaps.losses.precision import at_least_float32
from torchcaps.models import CapsuleNet, Model
from torchcaps.models.base import device_of

NORMAL_95 = 1.959963984540054  # 97.5 % of a normal distribution lie below


@dataclass(frozen=True)
class Score:
    """Sums over examples. ``correct`` counts those of which all classes, and no others, were found; ``counts`` are the
    examples of each class, ``hits`` those of them for which the class was found."""

    loss_sum: float = 0.0
    correct: int = 0
    total: int = 0
    counts: tuple[int, ...] = ()
    hits: tuple[int, ...] = ()

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.loss_sum + other.loss_sum,
            self.correct + other.correct,
            self.total + other.total,
            _add(self.counts, other.counts),
            _add(self.hits, other.hits),
        )

    @property
    def loss(self) -> float:
        return self.loss_sum / self.total if self.total else math.nan

    @property
    def accuracy(self) -> float:
        """Share from 0 to 1."""
        return self.correct / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval."""
        return interval(self.correct, self.total)

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the classes' recalls; ``None`` where classes were not counted."""
        return balanced_accuracy(self.hits, self.counts)

    @property
    def majority_share(self) -> float | None:
        """The share of the largest class, which is the accuracy of always answering with it."""
        return majority_share(self.counts, self.total)


def balanced_accuracy(hits: Sequence[int], counts: Sequence[int]) -> float | None:
    """The mean recall of the classes that have examples.

    >>> balanced_accuracy((171, 0), (171, 9))
    0.5
    """
    recalls = [hit / count for hit, count in zip(hits, counts, strict=True) if count]
    return sum(recalls) / len(recalls) if recalls else None


def majority_share(counts: Sequence[int], total: int) -> float | None:
    """The share of the largest class; ``None`` where examples have several classes or none.

    >>> majority_share((171, 9), 180), majority_share((5, 5), 5)
    (0.95, None)
    """
    return max(counts) / total if total and sum(counts) == total else None


def _add(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    if not first or not second:
        return first or second
    return tuple(one + other for one, other in zip(first, second, strict=True))


def interval(correct: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; it is never outside 0 to 1, and not empty at 0 or 1.

    >>> tuple(round(end, 4) for end in interval(975, 1000))
    (0.9634, 0.983)
    """
    if not 0 <= correct <= total or total == 0:
        raise ValueError(f"{correct} correct of {total}; expected 0 to all of at least one")
    share, spread = correct / total, NORMAL_95**2 / total
    middle = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def combine(logits: Sequence[Float[Tensor, "b k"]], loss: ClassificationLoss) -> Float[Tensor, "b k"]:
    """One row of logits from several of the same examples (crops, or models): the mean of what the loss takes for the
    classes' activations, said as logits again."""
    if len(logits) == 1:
        return logits[0]
    stacked = torch.stack(list(logits)).double()
    if isinstance(loss, CrossEntropyLoss):
        mean = stacked.softmax(-1).mean(0).log()
    elif isinstance(loss, MarginLoss) and loss.on == "score":
        mean = stacked.mean(0)
    else:
        mean = torch.logit(stacked.sigmoid().mean(0))
    return mean.clamp(-1e4, 1e4).to(logits[0].dtype)  # an infinite logit would make a loss of NaN


class ScoredOutputs(NamedTuple):
    """What a model answers: logits and labels of examples, in their order."""

    logits: Float[Tensor, "n k"]
    label: Int[Tensor, "n"] | Float[Tensor, "n k"]


@torch.no_grad()
def run_model(
    model: nn.Module,
    loader: Loader,
    loss: ClassificationLoss,
    *,
    batch_size: int = 128,
    indices: Int[Tensor, "n"] | None = None,
    precision: torch.dtype = torch.float32,
    watch: Callable[[ScoredOutputs, int, int], object] | None = None,
) -> ScoredOutputs | None:
    """The outputs for all examples of a loader, or those of ``indices``; ``None`` where there are none. The model is
    left as it was, in training or not.

    Where the loader has several crops of each example, they become one by ``combine``. ``watch`` is called with the
    outputs of each batch, how many examples are done, and how many there are.
    """
    if batch_size < 1:
        raise ValueError(f"batches have at least one example; got batch_size={batch_size}")
    device, training = device_of(model), model.training
    chosen = torch.arange(len(loader)) if indices is None else indices
    found: list[ScoredOutputs] = []
    model.eval()
    try:
        for start, numbers in zip(range(0, len(chosen), batch_size), chosen.split(batch_size), strict=False):
            seen = [batch.to(device) for batch in views(loader, numbers)]
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                logits = [model(*batch.inputs).logits for batch in seen]
            combined = combine([at_least_float32(each) for each in logits], loss)
            found.append(ScoredOutputs(combined.cpu(), seen[0].label.cpu()))
            if watch is not None:
                watch(found[-1], start + len(numbers), len(chosen))
    finally:
        model.train(training)
    return ScoredOutputs(*map(torch.cat, zip(*found, strict=True))) if found else None


def count(outputs: ScoredOutputs | None, loss: ClassificationLoss, step: int = 0) -> Score:
    """The counts of outputs. ``step`` is for losses that change while training goes on; the loss is that of the
    classes, without reconstruction."""
    if outputs is None:
        return Score()
    logits, label = outputs
    truth = target_rows(label, logits) > 0.5
    counted = (tuple(rows.sum(0).tolist()) for rows in (truth, truth & loss.decide(logits)))
    losses = loss.per_example(logits, label, step).double().sum()
    return Score(float(losses), int(loss.correct(logits, label).sum()), len(logits), *counted)


def score(
    model: nn.Module,
    loader: Loader,
    loss: ClassificationLoss,
    batch_size: int = 128,
    indices: Int[Tensor, "n"] | None = None,
) -> Score:
    """The counts of a model over all examples of a loader, or over those of ``indices``."""
    return count(run_model(model, loader, loss, batch_size=batch_size, indices=indices), loss)


LARGE = 0.6  # share from which the largest class hides the others


def describe_baseline(found: Score) -> str:
    """Balanced accuracy and the share of the largest class, to stand beside an accuracy; empty if not counted.

    >>> describe_baseline(Score(0.0, 171, 180, (171, 9), (171, 0)))
    'balanced accuracy 50.00 %, majority class 95.00 %'
    """
    named = (("balanced accuracy", found.balanced_accuracy), ("majority class", found.majority_share))
    return ", ".join(f"{name} {100 * share:.2f} %" for name, share in named if share is not None)


def is_chance(found: Score) -> bool:
    """Whether accuracy is not surely above the largest class's share, and balanced accuracy that of one constant
    answer. Examples with several classes are never said to be at chance.

    >>> is_chance(Score(0.0, 54, 150, (50, 50, 50), (50, 4, 0))), is_chance(Score(0.0, 135, 150, (50,) * 3, (45,) * 3))
    (True, False)
    """
    return Outcome(found.total, found.correct, found.counts, found.hits).is_chance


def advise(recipe: AnyRecipe, model: Model, found: Score, epoch: float) -> str:
    """What a model that is at chance should be told about, and what to try."""
    share = found.majority_share or 0.0
    said = (
        f"validation accuracy {found.accuracy:.2%} after epoch {epoch:.1f} is no better than always answering with the "
        f"largest class ({share:.2%}; balanced accuracy {found.balanced_accuracy or 0.0:.2%}); try "
    )
    tries = [f"--optimizer.lr {recipe.optimizer.lr / 3:.2g}"]
    if isinstance(model, CapsuleNet):
        suited = model.suited_losses
        if recipe.loss.kind not in suited:
            tries.insert(0, f"--loss.kind {suited[0]}, which suits this routing")
        if (model.routing_iterations or 1) > 1:
            tries.append("fewer iterations with --routing.num-iters 1")
    if share > LARGE:
        tries.append("more examples of the other classes")
    if not recipe.is_text:
        tries.append(f"`torchcaps data show {recipe.data.train}` to see whether labels belong to their images")
    return f"{said}{', '.join(tries[:-1])} or {tries[-1]} ({PAGE}#chance)"
