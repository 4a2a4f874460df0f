"""A study of convergence: networks trained with few iterations and to convergence, tested with other numbers."""

import os
import warnings
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from reproduction.base import CampaignScale
from reproduction.measured import LIMITS, Measured, StudyRun, by_network, count
from torchcaps.capsules import Capsules
from torchcaps.data.base import choose_evenly
from torchcaps.lab.explanation.comparison import MEBI
from torchcaps.lab.explanation.figures import COLORS, FAINT, MARKERS, drawing, grid_of_panels, new_figure, use_log_scale
from torchcaps.lab.tracing.networks import evaluating
from torchcaps.lab.training.distributed import World
from torchcaps.lab.training.learner import Learner
from torchcaps.lab.training.optimizers import rates
from torchcaps.layers import CapsuleLayer
from torchcaps.routing import Routing

MOST = {"laptop": 10, "smoke": 3}
SHOWN = (1, 2, 3, 5, 10)


def convergence(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Accuracy and change of the class capsules by the number of iterations in testing, and memory of training."""
    numbers = range(1, MOST[scale] + 1)
    found = {
        name: [_measure(each, numbers, LIMITS[scale]["counted"]) for each in seeds]
        for name, seeds in by_network(subjects).items()
    }
    shown = [number for number in SHOWN if number in numbers]
    columns = (
        "trained with",
        *(f"accuracy, {number} in testing" for number in shown),
        *(f"change of the poses by iteration {number}, %" for number in shown if number > 1),
        "memory of a training step, MiB",
    )
    rows = [
        (
            name,
            *([count(one["correct"][number - 1], one["total"]) for one in seeds] for number in shown),
            *([100 * one["change"][number - 2] for one in seeds] for number in shown if number > 1),
            [one["memory"] / MEBI for one in seeds],
        )
        for name, seeds in found.items()
    ]
    about = (
        "Weights as trained; only the number of iterations changes. A network that was trained to convergence makes so "
        "many plain iterations of its own equation, the others of Sabour's. The change is the length of the difference "
        "of all class poses to those of one iteration less, relative to their length, in the mean over test images. "
        "Memory is the most that tensors hold in a training step."
    )
    return Measured(about, columns, rows, {"": draw_convergence(found)}, numbers=found)


@torch.no_grad()
def _measure(subject: StudyRun, numbers: range, limit: int) -> dict[str, Any]:
    model, loader = subject.opened.model, subject.loader()
    layer = [part for part in model.modules() if isinstance(part, CapsuleLayer)][-1]
    seen: list[Capsules] = []
    handle = layer.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    indices = choose_evenly(limit, len(loader))
    correct, changes, total = [0] * len(numbers), [0.0] * (len(numbers) - 1), 0
    with evaluating(model):
        for part in indices.split(50):
            batch = loader.batch(part)
            seen.clear()
            model(*batch.inputs)
            (children,) = seen
            before: Tensor | None = None
            for place, number in enumerate(numbers):
                parents = _route(layer, children, number)
                seen.clear()
                logits = model.get_submodule("head")(parents)
                correct[place] += int(subject.opened.loss.correct(logits, batch.label).sum())
                pose = parents.pose.flatten(1)
                if before is not None:
                    changes[place - 1] += float(((pose - before).norm(dim=-1) / pose.norm(dim=-1)).sum())
                before = pose
            total += len(part)
    handle.remove()
    change = [each / total for each in changes]
    return {"correct": correct, "total": total, "change": change, "memory": _training_memory(subject)}


def _route(layer: CapsuleLayer, children: Capsules, number: int) -> Capsules:
    """The parents after so many iterations."""
    routing: Routing = layer.routing
    if routing.iterates:
        with routing.iterating(number):
            return layer(children)
    if not routing.takes("max_iters"):
        raise ValueError(f"{type(routing).__name__} has neither a number of iterations nor a limit of them")
    before = vars(routing).copy()
    vars(routing).update(max_iters=number, anderson=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # which says that so few iterations have not converged
        parents = layer(children)
    vars(routing).update(before)
    return parents


@torch.enable_grad()
def _training_memory(subject: StudyRun) -> int:
    """The most bytes that tensors hold at once in a training step, beyond what is there before it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # or the profiler tells the terminal that it starts and stops
    from torch.profiler import ProfilerActivity, profile

    recipe = subject.run.recipe
    learner = Learner(recipe, World(torch.device("cpu")))
    batch = subject.run.loader("train").batch(torch.arange(recipe.batch_size))
    rate = rates(0, 1, recipe.schedule, recipe.optimizer)
    learner.learn(batch, 0, rate)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        learner.learn(batch, 1, rate)
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])  # pyright: ignore
    return int(max(0, held.max()))


@drawing
def draw_convergence(found: dict[str, list[dict[str, Any]]]) -> Figure:
    """Accuracy and change by the number of iterations: the mean over seeds, and the range of all seeds."""
    figure = new_figure(8.6, 3.6, "Iterations in testing, by those in training")
    left, right = grid_of_panels(figure, 1, 2)[0]
    for number, (name, seeds) in enumerate(found.items()):
        style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 3}
        accuracy = np.array([[100 * right / one["total"] for right in one["correct"]] for one in seeds])
        change = np.array([one["change"] for one in seeds])
        for panel, values, first in ((left, accuracy, 1), (right, np.maximum(change, 1e-8), 2)):
            steps = np.arange(first, first + values.shape[1])
            panel.plot(steps, [fmean(column) for column in values.T], label=name, **style)
            panel.fill_between(steps, values.min(0), values.max(0), color=style["color"], alpha=0.15, linewidth=0)
    left.set(xlabel="iterations in testing", ylabel="accuracy [%]")
    right.set(xlabel="iteration", ylabel="relative change of the class poses")
    use_log_scale(right)
    for panel in (left, right):
        panel.grid(axis="y", color=FAINT, linewidth=0.4)
    left.legend(frameon=False, title="trained with")
    return figure
