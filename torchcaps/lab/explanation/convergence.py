"""Whether routing converges: changes from iteration to iteration, accuracy by iterations, and distances of votes.

Sabour 2017 (Fig. A.1), Tsai 2020 (Fig. 4) and Hinton 2018 (Fig. 2) each show one of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.data.base import choose_evenly
from torchcaps.lab.explanation.figures import (
    COLORS,
    FAINT,
    INK,
    MARKERS,
    SMALL,
    TINY,
    drawing,
    grid_of_panels,
    new_figure,
    use_log_scale,
)
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.loaders import Loader
from torchcaps.lab.tracing.networks import describe, evaluating, require_capsules
from torchcaps.lab.tracing.traces import LayerTrace, iterating, trace, trace_with_logits
from torchcaps.lab.training.scoring import interval as wilson_interval
from torchcaps.layers import CapsuleLayer
from torchcaps.losses import ClassificationLoss
from torchcaps.models.base import device_of


@dataclass(frozen=True)
class Changes(FigureRecord):
    """How much the routing of each layer changes from one iteration to the next.

    ``logits`` is the mean of |Δb|, ``coupling`` that of |Δc|. A routing's logits are known up to what is added to all
    parents of a child alike, so each child's mean is taken away first: what is left is the logarithm of its couplings
    about their mean.
    """

    logits: Float[np.ndarray, "layer t"]  # t: from iteration 1 to 2, from 2 to 3, …
    coupling: Float[np.ndarray, "layer t"]
    routings: tuple[str, ...]
    examples: int


@torch.no_grad()
def measure_changes(model: nn.Module, inputs: Tensor, num_iters: int = 6) -> Changes:
    """Route with so many iterations and measure what each of them changes."""
    if num_iters < 2:
        raise ValueError(f"a change needs two iterations at least; got num_iters={num_iters}")
    with iterating(model, num_iters):
        layers = trace(model, inputs)
    layers = [layer for layer in layers if layer.couples and layer.layer.routing.iterates]
    changes = [_layer_changes(layer) for layer in layers]
    return Changes(
        np.array([[logit for logit, _ in of_layer] for of_layer in changes], dtype=np.float32),
        np.array([[coupling for _, coupling in of_layer] for of_layer in changes], dtype=np.float32),
        tuple(layer.routing for layer in layers),
        len(inputs),
    )


def _layer_changes(layer: LayerTrace) -> list[tuple[float, float]]:
    tiny = torch.finfo(torch.float32).tiny
    couplings = [layer.couplings(t).float() for t in range(len(layer.iterations))]
    logits = [coupling.clamp_min(tiny).log() for coupling in couplings]
    logits = [logit - logit.mean(-1, keepdim=True) for logit in logits]
    return [
        ((logits[t + 1] - logits[t]).abs().mean().item(), (couplings[t + 1] - couplings[t]).abs().mean().item())
        for t in range(len(couplings) - 1)
    ]


@dataclass(frozen=True)
class IterationAccuracy(FigureRecord):
    """Accuracy for each number of iterations: ``correct`` of ``total`` examples."""

    iterations: Int[np.ndarray, "t"]
    correct: Int[np.ndarray, "t"]
    total: Int[np.ndarray, "t"]
    trained_with: int | None  # iterations that the weights were trained with; None: each its own
    name: str

    @property
    def accuracy(self) -> Float[np.ndarray, "t"]:
        return self.correct / np.maximum(self.total, 1)


@torch.no_grad()
def accuracy_by_iterations(
    model: nn.Module,
    loader: Loader,
    loss: ClassificationLoss,
    iterations: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    limit: int = 1000,
    batch_size: int = 50,
) -> IterationAccuracy:
    """Change the number of iterations of a trained network, without training it again."""
    net = require_capsules(model)
    indices = choose_evenly(limit, len(loader))
    correct = []
    for number in iterations:
        with iterating(net, number), evaluating(net):
            right = 0
            for part in indices.split(batch_size):
                batch = loader.batch(part).to(device_of(model))
                right += int(loss.correct(net(*batch.inputs).logits, batch.label).sum())
        correct.append(right)
    return IterationAccuracy(
        np.array(list(iterations)),
        np.array(correct),
        np.full(len(correct), len(indices)),
        _iterations_of(net),
        describe(model),
    )


def collect_retrained(name: str, results: Sequence[tuple[int, int, int]]) -> IterationAccuracy:
    """The same from runs that were each trained with their own number: ``(iterations, correct, total)`` of each."""
    if not results:
        raise ValueError("no results to compare; give (iterations, correct, total) of each run")
    iterations, correct, total = (np.array(column) for column in zip(*sorted(results), strict=True))
    return IterationAccuracy(iterations, correct, total, None, name)


def _iterations_of(model: nn.Module) -> int | None:
    net = require_capsules(model)
    if net.num_iters is not None:
        return net.num_iters
    routings = [layer.routing for layer in net.layers if isinstance(layer, CapsuleLayer)]
    return next((routing.num_iters for routing in routings if routing.iterates), None)


@dataclass(frozen=True)
class VoteDistances(FigureRecord):
    """How far the votes lie from the mean of their class capsule, after each iteration: histograms of the squared
    distances, each vote counting by its coupling and the presence of its child."""

    histogram: Float[np.ndarray, "n t k bin"]
    edges: Float[np.ndarray, "edge"]
    mean: Float[np.ndarray, "n t k"]  # weighted mean of the distances
    beyond: Float[np.ndarray, "n t k"]  # weight of the votes that lie farther away than the last edge
    label: Int[np.ndarray, "n"]
    probability: Float[np.ndarray, "n k"]
    routing: str
    classes: tuple[str, ...]


@torch.no_grad()
def measure_vote_distances(
    model: nn.Module,
    inputs: Tensor,
    labels: Int[Tensor, "n"],
    classes: Sequence[str] | None = None,
    *,
    bins: int = 30,
    quantile: float = 0.9,
) -> VoteDistances:
    """Measure the votes for the class capsules; the histograms reach to this quantile of all distances."""
    layers, logits = trace_with_logits(model, inputs)
    last = layers[-1]
    presence = last.as_votes_see(last.presence)[:, 0].unsqueeze(-1)
    distances, weights = [], []
    for t, votes in enumerate(last.votes):
        weight = last.couplings(t)[:, 0] * presence
        mean = votes.mix(weight) / weight.sum(-2).clamp_min(1e-30).unsqueeze(-1)
        distances.append(votes.distance(mean, torch.ones_like(mean)).clamp_min(0.0))
        weights.append(weight)
    distance, weight = torch.stack(distances, 1), torch.stack(weights, 1)  # n t i k
    top = (
        float(distance.flatten().float().quantile(quantile)) if distance.numel() < 10_000_000 else float(distance.max())
    )
    edges = np.linspace(0.0, max(top, 1e-6), bins + 1)
    far, heavy = as_array(distance), as_array(weight)
    shape = (far.shape[0], far.shape[1], far.shape[3])
    histogram = np.zeros((*shape, bins), np.float32)
    for n, t, k in np.ndindex(*shape):
        histogram[n, t, k] = np.histogram(far[n, t, :, k], edges, weights=heavy[n, t, :, k])[0]
    total = np.maximum(heavy.sum(2), 1e-30)
    return VoteDistances(
        histogram,
        edges.astype(np.float32),
        ((far * heavy).sum(2) / total).astype(np.float32),
        (heavy * (far > edges[-1])).sum(2).astype(np.float32),
        as_array(labels),
        as_array(logits.softmax(-1)),
        last.routing,
        class_names(classes, logits.shape[-1]),
    )


@drawing
def draw_changes(record: Changes, title: str = "What each iteration changes") -> Figure:
    """Mean change of routing logits and of couplings, on logarithmic scales."""
    figure = new_figure(7.6, 3.2, title)
    panels = grid_of_panels(figure, 1, 2)[0]
    steps = np.arange(2, record.logits.shape[1] + 2)
    drawn = ((record.logits, "mean change of routing logits"), (record.coupling, "mean change of couplings"))
    for panel, (values, label) in zip(panels, drawn, strict=True):
        for number, of_layer in enumerate(values):
            name = f"layer {number + 1}: {record.routings[number]}"
            style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
            panel.plot(steps, np.maximum(of_layer, 1e-12), label=name, **style)
        if (values > 0).any():
            use_log_scale(panel)
        panel.set(xlabel="iteration", ylabel=label)
        panel.set_xticks(steps)
        panel.grid(axis="y", color=FAINT, linewidth=0.4)
    panels[-1].legend(frameon=False)
    figure.supxlabel(f"against the iteration before; {record.examples} examples", fontsize=TINY, color=INK)
    return figure


@drawing
def draw_iteration_accuracy(
    records: Sequence[IterationAccuracy], title: str = "Accuracy by number of routing iterations"
) -> Figure:
    """Accuracy with its 95 % interval: each network at other numbers of iterations than it was trained with, and
    networks that were trained anew for each."""
    figure = new_figure(5.6, 3.5, title)
    panel = grid_of_panels(figure, 1, 1)[0, 0]
    for number, record in enumerate(records):
        color = COLORS[number % len(COLORS)]
        interval = np.array(
            [wilson_interval(int(c), int(n)) for c, n in zip(record.correct, record.total, strict=True)]
        )
        panel.fill_between(record.iterations, *(100 * interval.T), color=color, alpha=0.15, linewidth=0)
        how = "trained anew for each" if record.trained_with is None else f"trained with {record.trained_with}"
        panel.plot(
            record.iterations, 100 * record.accuracy, color=color, marker=MARKERS[number % len(MARKERS)],
            linestyle="-" if record.trained_with is None else "--", label=f"{record.name}, {how}",
        )  # fmt: skip
        if record.trained_with in record.iterations:
            place = list(record.iterations).index(record.trained_with)
            panel.plot(
                record.trained_with, 100 * record.accuracy[place], "o", markersize=11, fillstyle="none", color=color
            )
    panel.set(xlabel="routing iterations", ylabel="accuracy [%]")
    panel.set_xticks(sorted({int(t) for record in records for t in record.iterations}))
    panel.legend(frameon=False)
    total = max(int(record.total.max()) for record in records)
    note = f"up to {total} test examples; shaded: 95 % interval; ring: iterations of training"
    figure.supxlabel(note, fontsize=TINY, color=INK)
    return figure


@drawing
def draw_vote_distances(record: VoteDistances, title: str = "", *, example: int = 0, most_classes: int = 5) -> Figure:
    """Histograms of the votes' distances to the mean of each class capsule: a row for each class, a column for each
    iteration."""
    label = int(record.label[example])
    others = [int(k) for k in np.argsort(-record.probability[example]) if k != label]
    chosen = [label, *others][:most_classes]
    iterations = record.histogram.shape[1]
    figure = new_figure(
        2.3 * iterations + 0.8,
        1.05 * len(chosen) + 1.3,
        title or "Distances of votes to the mean of their class capsule",
    )
    panels = grid_of_panels(figure, len(chosen), iterations, sharex=True, sharey=True)
    for row, k in enumerate(chosen):
        for t in range(iterations):
            panel = panels[row, t]
            color = COLORS[0] if k == label else COLORS[1]
            panel.stairs(record.histogram[example, t, k], record.edges, fill=True, color=color, alpha=0.85)
            said = f"mean {record.mean[example, t, k]:.3g}"
            panel.text(0.97, 0.9, said, transform=panel.transAxes, ha="right", va="top", fontsize=TINY, color=INK)
        name = f"“{record.classes[k]}”" + (" (label)" if k == label else "")
        panels[row, 0].set_ylabel(f"{name}\n{100 * record.probability[example, k]:.0f} %", fontsize=SMALL)
    for t in range(iterations):
        panels[0, t].set_title(f"iteration {t + 1}")
        panels[-1, t].set_xlabel("squared distance of a vote")
    figure.supylabel("votes, by coupling × presence", fontsize=SMALL, color=INK)
    return figure
