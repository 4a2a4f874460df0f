"""The figure of learning: a panel for every two networks."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from torchcaps.lab.evaluation import shares_over_seeds
from torchcaps.lab.explanation.figures import COLORS, FAINT, MARKERS, drawing, grid_of_panels, legend_below, new_figure


@drawing
def draw_learning(
    curves: Mapping[str, Float[np.ndarray, "_ piece"]], tests: Mapping[str, list[dict[str, int]]], epochs: float
) -> Figure:
    """Training as lines, the test as a mark at the end, with 95 % intervals over seeds."""
    names = list(curves)
    pairs = list(zip(names[::2], names[1::2], strict=True))
    figure = new_figure(2.6 * len(pairs) + 0.4, 3.6, "Accuracy in training by epoch, and on test images at the end")
    (panels,) = grid_of_panels(figure, 1, len(pairs))
    lines = []
    for panel, pair in zip(panels, pairs, strict=True):
        for color, marker, name in zip(COLORS, MARKERS, pair, strict=False):
            pieces = curves[name].shape[1]
            middles = (np.arange(pieces) + 0.5) * epochs / pieces
            lines += panel.plot(middles, 100 * curves[name].mean(0), color=color)
            right = [each["correct"] / each["total"] for each in tests[name]]
            panel.plot(1.05 * epochs, 100 * fmean(right), marker, color=color, markersize=4)
            if len(right) > 1:
                ends = np.array([shares_over_seeds(column.tolist()) for column in curves[name].T])
                panel.fill_between(middles, *(100 * ends.T), color=color, alpha=0.15, linewidth=0)
                panel.plot([1.05 * epochs] * 2, [100 * end for end in shares_over_seeds(right)], color=color)
        panel.set_title(find_shared(pair))
        panel.set_xlabel("epoch")
        panel.grid(axis="y", color=FAINT, linewidth=0.4)
    panels[0].set_ylabel("accuracy [%]")
    labels = [find_own(name, pairs[0]) for name in pairs[0]]
    legend_below(figure, lines[:2], labels, "lines: training batches; marks: test; with 95 % intervals over seeds")
    return figure


def find_shared(names: Sequence[str]) -> str:
    """What the names have in common.

    >>> find_shared(["CIFAR-10, FM, augmented", "CIFAR-10, dynamic, augmented"])
    'CIFAR-10, augmented'
    """
    first, *others = (name.split(", ") for name in names)
    return ", ".join(part for part in first if all(part in other for other in others))


def find_own(name: str, names: Sequence[str]) -> str:
    """What only this one of the names says.

    >>> find_own("CIFAR-10, FM", ["CIFAR-10, FM", "CIFAR-10, dynamic"])
    'FM'
    """
    common = find_shared(names).split(", ")
    return ", ".join(part for part in name.split(", ") if part not in common)
