"""What is examined: a network, a batch, and what it is trained with. All work is done on copies."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.tracing.networks import HookedNet, require_capsules
from torchcaps.layers import CapsuleLayer
from torchcaps.losses import LOSSES, ClassificationLoss, choose_loss, reconstruction_errors
from torchcaps.models import Model, Prediction
from torchcaps.models.base import device_of
from torchcaps.routing import Routing

NewOptimizer = Callable[[nn.Module, float], torch.optim.Optimizer]
"""Makes an optimizer of a network's parameters with a learning rate."""


class Losses(NamedTuple):
    """Means over a batch, with gradients; ``reconstruction`` is weighted already."""

    classes: Tensor
    reconstruction: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Subject:
    """A network with a batch of labeled examples and its loss. ``reconstruction`` is the weight of the decoder's."""

    model: nn.Module
    batch: ModelBatch
    loss: ClassificationLoss
    reconstruction: float = 0.0
    step: int = 0  # of training, for losses that change with it

    def copy(self) -> "Subject":
        """The same with a network of its own, in training mode; batch norms that have seen nothing see this batch."""
        twin = copy.deepcopy(self.model).train()
        counts = [(part, part.num_batches_tracked) for part in batch_norms(twin)]
        fresh = [part for part, count in counts if count is not None and int(count) == 0]
        made = Subject(twin, self.batch, self.loss, self.reconstruction, self.step)
        if fresh and len(self.batch.label) > 1:
            momenta = [part.momentum for part in fresh]
            for part in fresh:
                part.momentum = None  # the mean of all that was seen
            with torch.no_grad():
                predict(twin, self.batch)
            for part, momentum in zip(fresh, momenta, strict=True):
                part.momentum = momentum
        if len(self.batch.label) == 1 and list(batch_norms(twin)):
            twin.eval()  # one example has no statistics
        return made

    def losses(self) -> Losses:
        """The losses of the batch."""
        batch, decode, image = self.batch, self.batch.decode, self.batch.image
        wanted = self.reconstruction and image is not None and decode is not None
        prediction = predict(self.model, batch, decode.clamp_min(0) if wanted and decode is not None else None)
        logits = prediction.logits.float()
        classes, reconstruction = self.loss(logits, batch.target, self.step), logits.new_zeros(())
        if prediction.reconstruction is not None and image is not None and decode is not None:
            errors = reconstruction_errors(prediction.reconstruction, image, decode >= 0)
            reconstruction = self.reconstruction * errors.mean()
        return Losses(classes, reconstruction, logits)


def predict(model: nn.Module, batch: ModelBatch, decode: Tensor | None = None) -> Prediction:
    """What a network, or any module with capsule layers, says of a batch."""
    net = model if isinstance(model, Model) else require_capsules(model)
    if decode is None or isinstance(net, HookedNet):
        return net(*batch.inputs)
    return net(*batch.inputs, decode=decode)


def batch_norms(model: nn.Module) -> Iterator[_BatchNorm]:
    """The batch norms of a network."""
    return (part for part in model.modules() if isinstance(part, _BatchNorm))


def last_routing(model: nn.Module) -> Routing | None:
    """The routing of the class capsules; ``None`` where there are no capsules."""
    layers = [part for part in model.modules() if isinstance(part, CapsuleLayer)]
    return layers[-1].routing if layers else None


def suited_loss(model: nn.Module, label: Tensor) -> ClassificationLoss:
    """The loss that the class capsules' routing learns from best."""
    routing = last_routing(model) or Routing
    multi_label = label.ndim == 2
    kind = LOSSES[choose_loss(routing.suited_losses, multi_label=multi_label)]
    return kind(decision="threshold") if multi_label else kind()


@contextmanager
def undisturbed() -> Iterator[None]:
    """The global random state is afterwards what it was before, and the numbers in between are always the same."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.manual_seed(0)
        yield


def as_batch(model: nn.Module, batch: object) -> ModelBatch:
    """A batch on the model's device, from a ``ModelBatch``, or inputs and labels."""
    if isinstance(batch, ModelBatch):
        return batch.to(device_of(model))
    if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        raise ValueError(f"batch is {_describe(batch)}; expected (inputs, labels), two tensors of as many examples")
    inputs, label = batch
    if len(inputs) != len(label) or not len(label):
        raise ValueError(f"{len(inputs)} inputs and {len(label)} labels; expected as many, and at least one")
    image = inputs.clamp(0, 1) if inputs.ndim == 4 else None
    decode = label if label.ndim == 1 and image is not None else None
    return ModelBatch((inputs,), label, label, image, decode).to(device_of(model))


def _describe(batch: object) -> str:
    if isinstance(batch, Tensor):
        return f"one tensor of shape {tuple(batch.shape)}"
    inside = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    return f"a {type(batch).__name__}{inside}"
