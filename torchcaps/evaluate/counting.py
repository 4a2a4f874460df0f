"""A model over all examples of a feed."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps.evaluate.evaluation import Evaluation, average, is_exclusive
from torchcaps.feeds import Feed
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model

Progress = Callable[[int, int], None]
"""Told after every batch how many examples are done, and how many there are."""


@torch.inference_mode()
def evaluate(
    model: Model,
    feed: Feed | Sequence[Feed],
    loss: ClassificationLoss,
    *,
    batch_size: int = 128,
    indices: Int[Tensor, "n"] | None = None,
    step: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Every example once, or those of ``indices``. Several feeds are several views of the same examples, such as crops:
    their probabilities are averaged. The last batch is as small as it happens to be; nothing is counted twice."""
    views = list(feed) if isinstance(feed, Sequence) else [feed]
    if batch_size < 1:
        raise ValueError(f"batches have at least one example; got batch_size={batch_size}")
    chosen = torch.arange(len(views[0])) if indices is None else indices
    if not len(chosen):
        raise ValueError("there is nothing to evaluate: the dataset has no examples")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    logits, labels, done = [], [], 0
    try:
        for numbers in chosen.split(batch_size):
            seen, label = _batch(model, views, numbers, device)
            _check_classes(seen, label, views[0])
            logits.append(average(seen, exclusive=is_exclusive(loss)))
            labels.append(label)
            done += len(numbers)
            if progress is not None:
                progress(done, len(chosen))
    finally:
        model.train(was_training)
    return Evaluation(views[0].classes, torch.cat(logits), torch.cat(labels), loss, step)


def _batch(
    model: Model, views: Sequence[Feed], numbers: Int[Tensor, "n"], device: torch.device
) -> tuple[Float[Tensor, "m n k"], Tensor]:
    """Logits of every view, and the labels, on the processor's side."""
    seen, label = [], None
    for view in views:
        fed = view.batch(numbers)
        label = fed.label if label is None else label
        seen.append(model(*(part.to(device) for part in fed.inputs)).logits.float().cpu())
    assert label is not None
    return torch.stack(seen), label.cpu()


def _check_classes(logits: Float[Tensor, "m n k"], label: Tensor, feed: Feed) -> None:
    known = logits.shape[-1]
    if len(feed.classes) != known or (label.ndim == 2 and label.shape[1] != known):
        raise ValueError(f"this model tells {known} classes apart; the data has {len(feed.classes)}")
