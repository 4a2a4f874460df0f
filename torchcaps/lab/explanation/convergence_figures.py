"""What routing iterations change, drawn."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from torchcaps.lab.explanation.convergence import Changes, IterationAccuracy, VoteDistances
from torchcaps.lab.explanation.figures import (
    COLOURS,
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
from torchcaps.lab.training.scoring import interval as wilson_interval


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
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
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
        color = COLOURS[number % len(COLOURS)]
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
            color = COLOURS[0] if k == label else COLOURS[1]
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
