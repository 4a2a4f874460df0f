"""A model over all examples of a loader."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps.lab.evaluation.evaluation import Evaluation
from torchcaps.lab.loaders import Loader, views
from torchcaps.lab.training.scoring import at_least_float32, combine
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model
from torchcaps.models.base import device_of

Progress = Callable[[int, int], object]
"""Told after every batch how many examples are done, and how many there are."""


@torch.inference_mode()
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
    if batch_size < 1:
        raise ValueError(f"batches have at least one example; got batch_size={batch_size}")
    chosen = torch.arange(len(loader)) if indices is None else indices
    if not len(chosen):
        raise ValueError("there is nothing to evaluate: the dataset has no examples")
    device = device_of(model)
    training = model.training
    model.eval()
    logits, labels, done = [], [], 0
    try:
        for numbers in chosen.split(batch_size):
            seen = [batch.to(device) for batch in views(loader, numbers)]
            said = combine([at_least_float32(model(*batch.inputs).logits) for batch in seen], loss)
            _check_classes(said, seen[0].label, loader)
            logits.append(said.cpu())
            labels.append(seen[0].label.cpu())
            done += len(numbers)
            if progress is not None:
                progress(done, len(chosen))
    finally:
        model.train(training)
    return Evaluation(loader.classes, torch.cat(logits), torch.cat(labels), loss, step)


def _check_classes(logits: Float[Tensor, "n k"], label: Tensor, loader: Loader) -> None:
    known = logits.shape[-1]
    if len(loader.classes) != known or (label.ndim == 2 and label.shape[1] != known):
        raise ValueError(f"this model tells {known} classes apart; the data has {len(loader.classes)}")
