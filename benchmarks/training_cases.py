"""The training loop in the benchmark: how much of its time is the model's, and how well two processes scale.

Both train the recipe that the package starts with, on the digits that ship with it, for a few steps.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from torchcaps.lab.recipes import configure
from torchcaps.lab.training import TrainOptions, train
from torchcaps.lab.training.learner import Learner

RECIPE = "quickstart"
BATCH = 50
IN_MODEL, SCALING = 0.9, 0.8  # targets
# Nothing but steps: no validation examples, a test of one, one line of metrics in all.
BARE = ("--data.val-size", "0", "--data.test-limit", "1")


@dataclass(frozen=True)
class TrainingOutcome:
    """A share that was measured, and the target."""

    name: str
    title: str
    share: float
    target: float
    details: dict[str, float]

    @property
    def reached(self) -> bool:
        return self.share >= self.target


def time_in_model(steps: int = 60, threads: int = 2) -> TrainingOutcome:
    """The share of the loop's time that goes into forward, backward and the step of the optimizer."""
    spent = 0.0
    plain = Learner.learn

    def timed(self: Learner, *arguments: Any, **named: Any) -> Any:
        nonlocal spent
        began = time.perf_counter()
        try:
            return plain(self, *arguments, **named)
        finally:
            spent += time.perf_counter() - began

    recipe = configure(RECIPE, "paper", ("--max-steps", str(steps), "--data.test-limit", "1"))
    with tempfile.TemporaryDirectory() as folder:
        Learner.learn = timed
        try:
            run = train(recipe, Path(folder) / "run", options=TrainOptions(threads=threads))
        finally:
            Learner.learn = plain
        record = run.record()
    assert record is not None
    title = f"time in the model, {RECIPE}: {steps} steps of {recipe.batch_size} on {threads} threads"
    details = {"model_seconds": spent, "loop_seconds": record["seconds"], "input_share": record["input_share"]}
    return TrainingOutcome("time-in-model", title, spent / max(record["seconds"], spent), IN_MODEL, details)


def weak_scaling(steps: int = 40) -> TrainingOutcome:
    """Throughput of two processes of one thread each against one, with the same batch for each process, divided by
    two."""
    alone, together = (throughput(processes, steps) for processes in (1, 2))
    title = f"two processes against one, {RECIPE}: {steps} steps of {BATCH} for each process, one thread each"
    details = {"images_per_second_1": alone, "images_per_second_2": together}
    return TrainingOutcome("weak-scaling", title, together / alone / 2, SCALING, details)


def throughput(processes: int, steps: int) -> float:
    """Images a second of the training command, under torchrun if there are several processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["torchcaps", "train", RECIPE, "--threads", "1", "--no-report", "--out", str(out), *BARE]
        words += ["--max-steps", str(steps), "--batch-size", str(BATCH * processes)]
        words += ["--results", folder]  # a record of this is no result
        spread = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
        command = [sys.executable, "-m", *(spread if processes > 1 else []), *words]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"training with {processes} processes ended with {done.returncode}: {done.stderr[-400:]}")
        record = json.loads((out / "record.json").read_text())
    return record["steps"] * BATCH * processes / record["seconds"]


CASES = {"time-in-model": time_in_model, "weak-scaling": weak_scaling}


def run_training(only: Sequence[str] = (), threads: int = 2) -> list[TrainingOutcome]:
    """All cases, or those that are named."""
    found = []
    if not only or "weak-scaling" in only:  # first: it needs both cores, and this process has no threads yet
        found.append(weak_scaling())
    if not only or "time-in-model" in only:
        found.append(time_in_model(threads=threads))
    return found


def lines(outcomes: Sequence[TrainingOutcome]) -> list[str]:
    """The results, one line each."""
    return [
        f"{each.name}: {100 * each.share:.1f} % (at least {100 * each.target:.0f} %)"
        + ("" if each.reached else "  missed")
        for each in outcomes
    ]


def record(outcomes: Sequence[TrainingOutcome], *, threads: int) -> dict[str, Any]:
    """The outcomes and the circumstances, as JSON takes them."""
    return {
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": round(os.getloadavg()[0], 2),
        "cases": [asdict(outcome) | {"reached": outcome.reached} for outcome in outcomes],
    }
