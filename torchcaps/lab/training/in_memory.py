"""The same training on arrays and into memory: no run folder, no files, no record."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import torchcaps.models as models
from torchcaps.data import Dataset
from torchcaps.lab.loaders import ImageLoader, Loader, ModelBatch
from torchcaps.lab.recipes import AnyRecipe, model_fields
from torchcaps.lab.training.distributed import World, choose_device
from torchcaps.lab.training.examples import RecipeData, Split
from torchcaps.lab.training.learner import Learner
from torchcaps.lab.training.loop import Loop
from torchcaps.lab.training.opening import TrainOptions
from torchcaps.lab.training.progress import reporter
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.stopping import StopRequest
from torchcaps.lab.training.training import deterministic
from torchcaps.models import Model
from torchcaps.models.base import mark_untrained


@dataclass
class Trained:
    """What a training in memory leaves behind."""

    model: Model  # the best on validation examples, the last where there were none
    metrics: list[dict[str, Any]]  # the lines that a run folder would have in metrics.jsonl
    steps: int
    state: dict[str, Tensor]  # weights and optimizer at the end, to go on from


class ArrayData(RecipeData):
    """Examples that are at hand, in place of those that the recipe names."""

    def __init__(self, recipe: AnyRecipe, datasets: Mapping[Split, Dataset]) -> None:
        super().__init__(recipe)
        self.datasets = datasets

    def examples(self, split: Split) -> Dataset:
        return self.datasets[split]

    def loader(self, split: Split, say: Callable[[str], object] = print) -> Loader:
        return ImageLoader(self.datasets[split], self.recipe.transforms)


@dataclass
class MemoryStore:
    """Metrics and the best weights of a training, in memory."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    best: float | None = None
    weights: dict[str, Tensor] | None = None  # of the model with the best validation accuracy, if there was any

    def open_metrics(self, kept: int, sha256: str, step: int, warn: Callable[[str], object]) -> "MemoryStore":
        return self

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def sync(self) -> tuple[int, str]:
        return 0, ""

    def save(self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor], options: TrainOptions) -> None:
        accuracy = state["val_accuracy"]
        if accuracy is None or (self.best is not None and accuracy <= self.best):
            return
        average = any(name.startswith("ema.") for name in tensors)
        prefix = "ema." if average else "model."
        kept = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        self.best, self.weights = accuracy, {name: tensor.detach().clone() for name, tensor in kept.items()}

    def save_batch(self, step: int, batch: ModelBatch, indices: Tensor) -> Path | None:
        return None

    def check(self) -> None: ...

    def close(self) -> None: ...


def train_in_memory(
    recipe: AnyRecipe,
    datasets: Mapping[Split, Dataset],
    *,
    device: str = "",
    console: Console | None = None,
    start: Mapping[str, Tensor] | None = None,
) -> Trained:
    """Train as the recipe says on these datasets: ``train``, and ``val`` if ``data.val_size`` is set. ``start`` is the
    ``state`` of a training to go on from. Nothing is written, and the global random state stays as it was."""
    world = World(choose_device(device))
    report = reporter(console)
    run = Run(Path(), recipe)  # a run needs a folder to be saved, and this one is not
    devices = [world.device] if world.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), deterministic(world.device):
        learner = Learner(recipe, world)
        if start is not None:
            learner.restore(start)
        loop = Loop(run, ArrayData(recipe, datasets), learner, world, TrainOptions(), report)
        loop.folder = store = MemoryStore()
        with closing(loop):
            report.start(loop.total, 0, f"{recipe.model_name}: {loop.order.examples:,} images, {loop.total:,} steps")
            try:
                loop.go(StopRequest())
            finally:
                report.stop()
        state = {name: tensor.detach().cpu().clone() for name, tensor in learner.tensors().items()}
    best = store.weights if recipe.weights == "best" else None
    # Laid out anew, as in a file: training has weights in the order that is fastest, and kernels round by the order.
    weights = {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in (best or learner.eval_model.state_dict()).items()
    }
    model = models.assemble(recipe.model_name, model_fields(recipe), weights, "the training", "cpu").eval()
    mark_untrained(model, recipe.loss.reconstruction)
    return Trained(model, store.lines, loop.position.step, state)
