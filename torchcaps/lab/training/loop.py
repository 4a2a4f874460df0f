"""The training loop: learn from a batch, note how it went, look at validation examples, save; until the end."""

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from torchcaps.kernels.waiting import give_way
from torchcaps.lab.diagnosis.findings import FIRST_EPOCHS
from torchcaps.lab.diagnosis.watching import Watch
from torchcaps.lab.loaders import Loader
from torchcaps.lab.training.batches import Batches, Order
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.examples import RecipeData
from torchcaps.lab.training.learner import Learner, Sums
from torchcaps.lab.training.opening import Metrics, Store, TrainOptions
from torchcaps.lab.training.optimizers import Rates, rates
from torchcaps.lab.training.progress import Reporter
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.scoring import (
    Score,
    ScoredOutputs,
    advise,
    count,
    describe_baseline,
    is_chance,
    run_model,
)
from torchcaps.lab.training.stopping import DivergedError, StoppedError, StopRequest

LINES = 200  # of metrics in a training, about
MOST_STEPS_A_LINE = 100


@dataclass
class Position:
    """Where training is: with the tensors of the learner, all that a checkpoint needs."""

    step: int = 0
    sums: Sums = field(default_factory=Sums)  # since the last line of metrics
    val_accuracy: float | None = None  # accuracy, if it was looked at in this very place
    best: float | None = None  # the highest validation accuracy so far
    without_better: int = 0  # evaluations since then
    seconds: float = 0.0  # of training, over all its parts
    waited: float = 0.0  # of these, for examples
    metrics_bytes: int = 0
    metrics_sha256: str = ""  # of these bytes; older checkpoints have none

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Position":
        known = {name: state[name] for name in cls.__dataclass_fields__ if name in state}
        return cls(**{**known, "sums": Sums(**known["sums"])})


class Loop:
    """One training from where it is to its end."""

    def __init__(
        self, run: Run, data: RecipeData, learner: Learner, world: World, options: TrainOptions, report: Reporter
    ) -> None:
        self.run, self.recipe, self.learner, self.world = run, run.recipe, learner, world
        self.options, self.report = options, report
        recipe, loader = run.recipe, data.loader("train")
        self.order = Order(len(loader), recipe.batch_size, recipe.seed, getattr(loader, "lengths", None))
        on_gpu = world.device.type == "cuda"
        self.batches = Batches(loader, self.order, recipe.seed, ahead=on_gpu, pin=on_gpu)
        self.val = data.loader("val") if recipe.data.val_size else None
        if recipe.stop_at is not None and self.val is None:
            raise ValueError("stop_at looks at validation examples; set --data.val-size as well, or leave it out")
        if recipe.patience is not None and self.val is None:
            raise ValueError("patience looks at validation examples; set --data.val-size as well, or leave it out")
        if recipe.patience is not None and recipe.patience < 1:
            raise ValueError(f"patience is {recipe.patience} evaluations; give at least 1, or leave it out")
        if recipe.eval_every is not None and recipe.eval_every < 1:
            raise ValueError(f"eval_every is {recipe.eval_every} steps; give at least 1, or leave it out for an epoch")
        self.total = max(1, round(recipe.epochs * self.order.steps_per_epoch))
        if recipe.max_steps is not None:
            self.total = min(self.total, recipe.max_steps)
        self.line_every = min(self.order.steps_per_epoch, max(1, self.total // LINES), MOST_STEPS_A_LINE)
        self.position = Position()
        self.metrics: Metrics | None = None
        self.folder: Store | None = None  # in the main process
        self.saved_at = time.monotonic()
        self.saved_step = -1
        self.warned_of_chance = not options.doctor
        self.watch = None
        if options.doctor and world.main:
            self.watch = Watch(
                learner.model,
                learner.loss,
                classes=getattr(learner.model, "classes", len(loader.classes)),
                examples=math.ceil(recipe.batch_size / (world.size * recipe.grad_accum_steps)),
                is_image=not recipe.is_text,
                reconstruction=recipe.loss.reconstruction,
                warn=report.warn,
            )

    def restore(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go to where a checkpoint was made."""
        self.position = Position.of(state)
        self.learner.restore(tensors)
        self.saved_step = self.position.step

    def go(self, request: StopRequest) -> None:
        """Train to the end."""
        if self.folder is not None:
            here = self.position
            kept = here.metrics_bytes, here.metrics_sha256
            self.metrics = self.folder.open_metrics(*kept, here.step, self.report.warn)
        self.line_began = self.tick = time.monotonic()
        self.line_examples = self.order.seen(self.position.step)
        while not self.finished:
            stop = self._learn(request.made)
            self._note()
            self._validate()
            self._save_if_due(stop)
            if stop:
                raise StoppedError(f"stopped at step {self.position.step:,} of {self.total:,}, which is saved")

    def close(self) -> None:
        self.batches.close()
        if self.metrics is not None:
            self.metrics.close()

    @property
    def finished(self) -> bool:
        val, wanted = self.position.val_accuracy, self.recipe.stop_at
        reached = val is not None and wanted is not None and 100 * val >= wanted
        patience = self.recipe.patience
        given_up = patience is not None and self.position.without_better >= patience
        return reached or given_up or self.position.step >= self.total

    def rates_of(self, step: int) -> Rates:
        return rates(step, self.total, self.recipe.schedule, self.recipe.optimizer)

    def _learn(self, stop: bool) -> bool:
        """One step; whether any process was asked to stop."""
        give_way()
        here = self.position
        waited = self.batches.waited
        batch = self.batches.at(here.step)
        if self.watch is not None:
            self.watch.look(here.step, batch)
        sums, finite = self.learner.learn(batch, here.step, self.rates_of(here.step))
        *summed, stops, troubles = self.world.sum(*asdict(sums).values(), stop, not finite)
        if troubles:
            self._refuse(here.step, batch)
        here.sums = Sums(*(before + new for before, new in zip(asdict(here.sums).values(), summed, strict=True)))
        here.step, here.val_accuracy = here.step + 1, None
        now = time.monotonic()
        here.seconds, here.waited = here.seconds + now - self.tick, here.waited + self.batches.waited - waited
        self.tick = now
        self.report.update(
            here.step, here.sums.loss / here.sums.count, here.sums.correct / here.sums.count, **self._pace()
        )
        return bool(stops)

    def _pace(self) -> dict[str, float]:
        seen = self.order.seen(self.position.step) - self.line_examples
        took = max(1e-9, time.monotonic() - self.line_began)
        return {"speed": seen / took, "epoch": self.position.step / self.order.steps_per_epoch}

    def _note(self) -> None:
        """A line of metrics every so many steps."""
        here = self.position
        if here.step % self.line_every and here.step < self.total:
            return
        sums, count = here.sums, here.sums.count
        reconstruction = {"reconstruction": sums.reconstruction / count} if self.recipe.loss.reconstruction else {}
        lr = self.rates_of(here.step - 1).lr
        self.line("train", Score(sums.loss, round(sums.correct), round(count)), {**reconstruction, "lr": lr})
        here.sums = Sums()
        self.line_began, self.line_examples = time.monotonic(), self.order.seen(here.step)

    def line(self, kind: str, found: Score, more: dict[str, float]) -> None:
        """Write down how a part of the examples was answered."""
        here, pace = self.position, self._pace()
        line = {"kind": kind, "step": here.step, "epoch": pace["epoch"], "examples": self.order.seen(here.step)}
        line |= {"loss": found.loss, "accuracy": found.accuracy, **more, "seconds": round(here.seconds, 3)}
        if found.balanced_accuracy is not None:
            line["balanced_accuracy"] = found.balanced_accuracy
        if kind == "train":
            line["examples_per_second"] = round(pace["speed"], 1)
        if self.metrics is not None:
            self.metrics.add(line)

    def _validate(self) -> None:
        """How well the model does on validation examples: after each epoch, or as often as the recipe says, and at the
        end."""
        here, every = self.position, self.recipe.eval_every or self.order.steps_per_epoch
        if self.val is None or (here.step % every and here.step < self.total):
            return
        found, _ = self.evaluate(self.val)
        here.val_accuracy = found.accuracy
        self.line("val", found, {})
        self.report.say(
            f"epoch {self._pace()['epoch']:.1f}: validation accuracy {found.accuracy:.2%} "
            f"({found.correct:,} of {found.total:,}; {describe_baseline(found)}), loss {found.loss:.4f}"
        )
        self._warn_of_chance(found)
        self.line_began = time.monotonic()

    def _warn_of_chance(self, found: Score) -> None:
        """Say once, after the first epochs, if nothing was learned in them, and what to try."""
        epoch = self.order.steps_per_epoch
        early = self.position.step < min(FIRST_EPOCHS * epoch, max(epoch, self.total))
        if self.warned_of_chance or early or not is_chance(found):
            return
        self.warned_of_chance = True
        self.report.warn(advise(self.recipe, self.learner.model, found, self._pace()["epoch"]))

    def evaluate(self, loader: Loader) -> tuple[Score, ScoredOutputs | None]:
        """The counts over all of a loader's examples, each looked at by one process; and the outputs of this one."""
        mine = torch.arange(len(loader))[self.world.rank :: self.world.size]
        precision = torch.bfloat16 if self.recipe.precision == "bfloat16" else torch.float32
        batch_size = max(1, self.recipe.batch_size // self.recipe.grad_accum_steps)
        model, loss_function = self.learner.eval_model, self.learner.loss
        outputs = run_model(model, loader, loss_function, batch_size=batch_size, indices=mine, precision=precision)
        found = count(outputs, loss_function, self.position.step)
        classes = len(found.counts) or len(loader.classes)  # a model may tell more classes apart than the data have
        unseen = (0,) * classes  # more processes than examples: this one saw none
        loss, *counted = self.world.sum(
            found.loss_sum, found.correct, found.total, *(found.counts or unseen), *(found.hits or unseen)
        )
        correct, total, *by_class = map(round, counted)
        return Score(loss, correct, total, tuple(by_class[:classes]), tuple(by_class[classes:])), outputs

    def _save_if_due(self, stop: bool) -> None:
        here = self.position
        better = here.val_accuracy is not None and (here.best is None or here.val_accuracy > here.best)
        here.best = here.val_accuracy if better else here.best
        if here.val_accuracy is not None:
            here.without_better = 0 if better else here.without_better + 1
        epoch_over = here.step % self.order.steps_per_epoch == 0
        if self.options.every is None:
            due = time.monotonic() - self.saved_at >= self.options.seconds
        else:
            due = here.step % self.options.every == 0 or epoch_over
        if due or better or stop or self.finished:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, and delete those that are no longer needed."""
        if self.folder is not None and self.saved_step != self.position.step:
            self.sync()
            self.folder.save(self.position.step, asdict(self.position), self.learner.tensors(), self.options)
        self.saved_at, self.saved_step = time.monotonic(), self.position.step

    def sync(self) -> None:
        """See to it that the metrics so far are on the disk."""
        if self.metrics is not None:
            self.position.metrics_bytes, self.position.metrics_sha256 = self.metrics.sync()

    def _refuse(self, step: int, batch: Any) -> None:
        where = ""
        if self.folder is not None and (path := self.folder.save_batch(step, batch, self.order.batch(step))):
            where = f" The batch is in {path}."
        raise DivergedError(
            f"step {step}: the loss or its gradient is not a finite number, so the weights were left as they were."
            f"{where}\nTry a lower --optimizer.lr, --clip 1, or --precision float32; the last checkpoint is kept."
        )
