"""A model and all that changes it: loss, optimizer, moving average. One call is one step on one whole batch."""

import copy
import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.recipes import AnyRecipe, build_loss, build_model
from torchcaps.lab.training.batches import mix_seeds
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.optimizers import (
    Rates,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rates,
)
from torchcaps.losses import ClassificationLoss, reconstruction_errors
from torchcaps.losses.precision import at_least_float32
from torchcaps.models import Model
from torchcaps.votes.blocks import in_high_precision


@dataclass
class Sums:
    """Sums over examples since the last line of metrics, over all processes."""

    loss: float = 0.0
    reconstruction: float = 0.0
    correct: float = 0.0
    count: float = 0.0


class Objective(nn.Module):
    """What is minimized, example by example: the loss of the classes, and of the reconstruction if there is one."""

    def __init__(self, model: Model, loss: ClassificationLoss, reconstruction: float) -> None:
        super().__init__()
        self.model, self.loss, self.reconstruction = model, loss, reconstruction

    def forward(self, batch: ModelBatch, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Losses of the classes, losses of the reconstructions, and logits."""
        if not self.reconstruction:
            logits = at_least_float32(self.model(*batch.inputs).logits)
            return self.loss.per_example(logits, batch.target, step), logits.new_zeros(len(logits)), logits
        if batch.image is None or batch.decode is None:
            raise ValueError("these examples have no images to reconstruct; train with --loss.reconstruction 0")
        prediction = self.model(*batch.inputs, decode=batch.decode.clamp_min(0))
        logits, decoded = at_least_float32(prediction.logits), prediction.reconstruction
        if decoded.shape != batch.image.shape:
            raise ValueError(
                f"the decoder gives {tuple(decoded.shape[1:])} and the images are {tuple(batch.image.shape[1:])}; "
                f"create the model with the sizes of the images, or train with --loss.reconstruction 0"
            )
        errors = self.reconstruction * reconstruction_errors(decoded, batch.image, batch.decode >= 0)
        return self.loss.per_example(logits, batch.target, step), errors, logits


def lay_out_for_cpu(model: nn.Module) -> None:
    """Put the weights of convolutions into the order in which oneDNN convolves fastest; saved files do not show it.

    Not if any of them has a kernel of 1×1 and a stride and does not fill whole vectors of channels: in this order, the
    backward pass of those writes beyond its memory (torch 2.13, fewer than 8 channels; 16 are a vector elsewhere).
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not any(
        set(each.kernel_size) == {1} and max(each.stride) > 1 and each.in_channels % 16 for each in convolutions
    ):
        nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)


class Learner:
    """The model in training. ``eval_model`` is the one to evaluate and to keep: the moving average if there is one."""

    def __init__(self, recipe: AnyRecipe, world: World) -> None:
        self.recipe, self.world = recipe, world
        self.model = build_model(recipe).to(world.device)
        self.loss = build_loss(recipe)
        decoder = getattr(self.model, "decoder", None)
        if recipe.loss.reconstruction and decoder is None:
            raise ValueError(f"{recipe.model_name} has no decoder; set --loss.reconstruction 0")
        if recipe.loss.reconstruction and recipe.transforms.mixup:
            raise ValueError("mixed images cannot be reconstructed; set transforms.mixup or loss.reconstruction to 0")
        if decoder is not None and not recipe.loss.reconstruction:
            decoder.requires_grad_(False)  # nothing would teach it; processes that train together would wait for it
        if world.size > 1 and world.device.type == "cuda":
            nn.SyncBatchNorm.convert_sync_batchnorm(self.model)  # changes the model in place
        if world.device.type == "cpu":
            lay_out_for_cpu(self.model)
        self.average = copy.deepcopy(self.model).requires_grad_(False) if recipe.ema else None
        self.optimizer = build_optimizer(self.model, recipe.optimizer)
        self.objective = world.wrap(Objective(self.model, self.loss, recipe.loss.reconstruction))
        if recipe.compile:
            self.model.compile()

    @property
    def eval_model(self) -> Model:
        return self.model if self.average is None else self.average

    def learn(self, batch: ModelBatch, step: int, rates: Rates) -> tuple[Sums, bool]:
        """One step on a whole batch, of which this process takes its share. What came of its share, and whether all
        was finite; if not, the weights stay as they were."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        count = len(batch.label)
        share = self.world.share(count)
        mine = batch.part(share.start, share.stop).to(self.world.device)
        empty = share.start == share.stop
        if empty:  # more processes than examples: one takes part in the exchange, and weighs nothing
            mine = batch.part(0, 1).to(self.world.device)
        figures: list[Tensor] = []
        size = math.ceil(len(mine.label) / self.recipe.grad_accum_steps)
        starts = range(0, len(mine.label), size)
        for number, start in enumerate(starts):
            torch.manual_seed(mix_seeds(self.recipe.seed, step, self.world.rank, number))
            weight = 0.0 if empty else 1 / count
            figures.append(self._backward(mine.part(start, start + size), step, weight, start == starts[-1]))
        parameters = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        # The one moment of a step at which the host waits for the device.
        *parts, (length, *_) = torch.stack([*figures, norm.to(figures[0]).expand(3)]).tolist()
        loss, reconstruction, correct = (sum(column) for column in zip(*parts, strict=True))
        finite = math.isfinite(length) and math.isfinite(loss + reconstruction)
        if finite:
            self._change(parameters, norm, step, rates)
        return (Sums() if empty else Sums(loss, reconstruction, float(correct), float(len(mine.label)))), finite

    def _backward(self, part: ModelBatch, step: int, weight: float, last: bool) -> Float[Tensor, "3"]:
        """Gradients of one part of the batch, exchanged with the other processes after the last part. Loss,
        reconstruction loss and correct answers, still on the device."""
        alone = not last and isinstance(self.objective, DistributedDataParallel)
        device, precision = self.world.device.type, self.recipe.precision
        with self.objective.no_sync() if alone else nullcontext():  # pyright: ignore
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                losses, drawing, logits = self.objective(part, step)
            # Processes' gradients are averaged, so that each example weighs one part of the batch's count.
            ((losses + drawing).sum() * (weight * self.world.size)).backward()
        correct = self.loss.correct(logits.detach(), part.label)
        figures = [in_high_precision(figure.detach()).sum() for figure in (losses, drawing, correct.to(losses))]
        return torch.stack(figures)

    def _change(self, parameters: list[nn.Parameter], norm: Tensor, step: int, rates: Rates) -> None:
        """Change the weights by the gradients, which are all processes' by now."""
        if self.recipe.clip is not None:
            clip_grads_with_norm_(parameters, self.recipe.clip, norm)
        set_rates(self.optimizer, rates)
        self.optimizer.step()
        if self.average is not None:
            self._follow(self.average, min(self.recipe.ema, (1 + step) / (10 + step)))

    @torch.no_grad()
    def _follow(self, average: Model, decay: float) -> None:
        """The average's next weights; the first ones weigh less the longer training goes on."""
        torch._foreach_lerp_(list(average.parameters()), list(self.model.parameters()), 1 - decay)
        for mean, buffer in zip(average.buffers(), self.model.buffers(), strict=True):
            mean.copy_(buffer)

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint keeps of it."""
        kept = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.average is not None:
            kept |= {f"ema.{name}": tensor for name, tensor in self.average.state_dict().items()}
        state = optimizer_tensors(self.optimizer, self.model)
        return kept | {f"optimizer.{name}": tensor for name, tensor in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Be as when ``tensors`` were taken."""
        self.model.load_state_dict(_under("model.", tensors))
        if self.average is not None:
            self.average.load_state_dict(_under("ema.", tensors))
        load_optimizer_tensors(self.optimizer, self.model, _under("optimizer.", tensors))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
