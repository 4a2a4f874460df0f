"""Networks side by side: how good, how large, how fast, how robust, how sure of themselves."""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from matplotlib.figure import Figure

from torchcaps.data.base import choose_evenly
from torchcaps.lab.evaluation import evaluate
from torchcaps.lab.evaluation.evaluation import BINS, Evaluation
from torchcaps.lab.explanation.distortions import DISTORTIONS
from torchcaps.lab.explanation.figures import (
    COLORS,
    FAINT,
    INK,
    MARKERS,
    TINY,
    drawing,
    grid_of_panels,
    legend_below,
    new_figure,
)
from torchcaps.lab.explanation.records import FigureRecord, as_array
from torchcaps.lab.explanation.robustness import Robustness, measure_robustness
from torchcaps.lab.loaders import Loader
from torchcaps.lab.tracing.networks import evaluating, takes_images
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model, count_macs, count_parameters

MEBI = 1024**2


@dataclass(frozen=True)
class Standing(FigureRecord):
    """One network among those compared. Times and memory are those of this machine, for ``batch`` images at a time;
    memory is the most that tensors held at once while one batch went through, weights not counted."""

    name: str
    data: str
    correct: int
    total: int
    interval: tuple[float, float]
    calibration_error: float
    parameters: int
    macs: int
    milliseconds: float  # for one image
    mebibytes: float
    batch: int
    threads: int
    confidence: Float[np.ndarray, "bin"]  # mean of each bin; NaN where it is empty
    hit: Float[np.ndarray, "bin"]  # share of right answers in each bin
    counts: Int[np.ndarray, "bin"]
    right: Bool[np.ndarray, "n"]  # whether each example is correct
    label: Shaped[np.ndarray, "n ..."]  # of each example: by them others know whether theirs are the same

    @property
    def accuracy(self) -> float:
        return self.correct / self.total


def measure_standing(
    model: Model, loader: Loader, loss: ClassificationLoss, *, name: str, data: str, limit: int | None = None,
    batch: int = 32, repeats: int = 5,
) -> Standing:  # fmt: skip
    """Evaluate, count and time one network, on all examples or on ``limit`` of them."""
    indices = choose_evenly(len(loader) if limit is None else limit, len(loader))
    found = evaluate(model, loader, loss, indices=indices)
    confidence, hit, counts = reliability(found)
    inputs = loader.batch(indices[: min(batch, len(indices))]).inputs
    return Standing(
        name, data, found.correct, found.total, found.interval, found.calibration_error(),
        count_parameters(model), count_macs(model, tuple(inputs[0].shape[1:])),
        1000 * seconds(model, inputs, repeats) / len(inputs[0]), peak_memory(model, inputs) / MEBI,
        len(inputs[0]), torch.get_num_threads(), confidence, hit, counts, as_array(found.right), as_array(found.label),
    )  # fmt: skip


def reliability(found: Evaluation, bins: int = BINS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean confidence and share of right answers in bins of confidence, and how many answers each bin has."""
    if found.multi_label:
        confidence, hit = found.probabilities.flatten().double(), found.truth.flatten().double()
    else:
        confidence, hit = found.probabilities.amax(-1).double(), found.right.double()
    place = (confidence * bins).long().clamp_max(bins - 1).cpu().numpy()
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(place, each.cpu().numpy(), bins) / counts for each in (confidence, hit)]
    return means[0].astype(np.float32), means[1].astype(np.float32), counts


@torch.inference_mode()
def seconds(model: Model, inputs: tuple[torch.Tensor, ...], repeats: int = 5) -> float:
    """The median time of a forward pass, after one that is not timed."""
    times = []
    with evaluating(model):
        model(*inputs)
        for _ in range(repeats):
            start = time.perf_counter()
            model(*inputs)
            if inputs[0].is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


@torch.inference_mode()
def peak_memory(model: Model, inputs: tuple[torch.Tensor, ...]) -> int:
    """The most bytes that tensors hold at once during a forward pass, by the profiler's book of what is allocated."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # or the profiler tells the terminal that it starts and stops
    from torch.profiler import ProfilerActivity, profile

    with evaluating(model):
        model(*inputs)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            model(*inputs)
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is None:
        return 0
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])  # pyright: ignore
    return int(max(0, held.max())) if len(held) else 0


def measure_all(
    model: Model,
    loader: Loader,
    loss: ClassificationLoss,
    *,
    name: str,
    data: str,
    limit: int | None,
    robust_limit: int,
) -> tuple[Standing, Robustness | None]:
    """A network's standing, and its robustness where its inputs are images."""
    standing = measure_standing(model, loader, loss, name=name, data=data, limit=limit)
    if not takes_images(model, loader.batch(torch.zeros(1, dtype=torch.long)).inputs[0]):
        return standing, None
    return standing, measure_robustness(model, loader, loss, name=name, kinds=tuple(DISTORTIONS), limit=robust_limit)


@drawing
def draw_accuracies(standings: Sequence[Standing], title: str = "Accuracy with its 95 % interval") -> Figure:
    """A point and its interval for each network, the best above."""
    order = sorted(standings, key=lambda each: each.accuracy)
    figure = new_figure(6.4, 0.42 * len(order) + 1.5, title)
    panel = grid_of_panels(figure, 1, 1)[0, 0]
    for row, each in enumerate(order):
        low, high = each.interval
        panel.plot([100 * low, 100 * high], [row, row], color=COLORS[0], linewidth=2.5, solid_capstyle="butt")
        panel.plot(100 * each.accuracy, row, "o", color=COLORS[0])
        panel.annotate(
            f"{100 * each.accuracy:.2f} %", (100 * each.accuracy, row), xytext=(0, 6), textcoords="offset points",
            ha="center", fontsize=TINY, color=INK,
        )  # fmt: skip
    panel.set_yticks(range(len(order)), [each.name for each in order])
    panel.set_ylim(-0.6, len(order) - 0.2)
    panel.set_xlabel("accuracy [%]")
    panel.grid(axis="x", color=FAINT, linewidth=0.4)
    return figure


@drawing
def draw_calibration(standings: Sequence[Standing], title: str = "Calibration") -> Figure:
    """Share of right answers against confidence; on the line, confidence is what it says."""
    figure = new_figure(5.4, 4.4 + 0.18 * len(standings), title)
    panel = grid_of_panels(figure, 1, 1)[0, 0]
    panel.plot([0, 100], [0, 100], color=FAINT, linewidth=1.0, linestyle=":", label="as sure as right")
    for number, each in enumerate(standings):
        there = each.counts > 0
        panel.plot(
            100 * each.confidence[there], 100 * each.hit[there], color=COLORS[number % len(COLORS)],
            marker=MARKERS[number % len(MARKERS)], markersize=4,
            label=f"{each.name}: error {100 * each.calibration_error:.1f} points",
        )  # fmt: skip
    panel.set(xlabel="confidence [%]", ylabel="right answers [%]", xlim=(-2, 102), ylim=(-2, 102))
    legend_below(figure, *panel.get_legend_handles_labels(), columns=1)
    return figure
