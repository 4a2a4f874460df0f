"""The figure of the controlled comparison: accuracy on each dataset, clean and distorted, beside time and memory."""

from collections.abc import Callable
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.comparison import Stand, stands
from reproduction.comparison_plan import SCENES, TITLES
from reproduction.paths import RecordPaths
from torchcaps.lab.evaluation import over_seeds
from torchcaps.lab.explanation.figures import COLORS, FAINT, INK, MARKERS, TINY, drawing, grid_of_panels, new_figure


@drawing
def draw_comparison(places: RecordPaths) -> Figure:
    """All routings, a line for each in every panel."""
    found = stands(places)
    figure = new_figure(10.0, 2.1 + 0.5 * len(TITLES), "Routings compared: same backbone, votes, loss and length")
    (*clean, times), (*distorted, memory) = grid_of_panels(figure, 2, len(SCENES) + 1, sharey=True)
    for above, below, data in zip(clean, distorted, SCENES, strict=True):
        for row, routing in enumerate(TITLES):
            _draw_accuracy(above, row, found[routing][data])
            _draw_distorted(below, row, found[routing][data])
        above.set_title(data)
        above.set_xlabel("right, test images [%]")
        below.set_xlabel("right, distorted ones [%]")
    rows = [list(by_data.values()) for by_data in found.values()]
    _draw_means(times, rows, lambda one: one.step)
    times.set_title("training step")
    times.set_xlabel("mean of the four [ms]")
    _draw_means(memory, rows, lambda one: one.memory)
    memory.set_title("memory of inference")
    memory.set_xlabel("mean of the four [MiB]")
    for panels in ((*clean, times), (*distorted, memory)):
        panels[0].set_yticks(range(len(TITLES)), list(TITLES))
        panels[0].set_ylim(len(TITLES) - 0.4, -0.6)
        for panel in panels:
            panel.grid(axis="x", color=FAINT, linewidth=0.4)
    return figure


def _draw_accuracy(panel: Axes, row: int, one: Stand) -> None:
    """With its interval over seeds."""
    if one.accuracy is not None:
        low, high = one.accuracy.interval
        _draw_interval(panel, row, 100 * one.accuracy.value, (100 * low, 100 * high), 0)


def _draw_distorted(panel: Axes, row: int, one: Stand) -> None:
    """With its interval over seeds."""
    if one.distorted:
        _draw_interval(panel, row, fmean(one.distorted), over_seeds(one.distorted), 1)


def _draw_interval(panel: Axes, row: int, mean: float, ends: tuple[float, float], look: int) -> None:
    panel.plot(ends, [row, row], color=COLORS[look], linewidth=2.5, solid_capstyle="butt")
    panel.plot(mean, row, MARKERS[look], color=COLORS[look])


def _draw_means(panel: Axes, rows: list[list[Stand]], of: Callable[[Stand], float | None]) -> None:
    """Bars of what is known on all sets of data: a mean over other data would not be comparable."""
    for row, stands_of_one in enumerate(rows):
        known = [value for value in map(of, stands_of_one) if value is not None]
        if len(known) == len(stands_of_one):
            panel.barh(row, fmean(known), height=0.5, color=COLORS[5])
            panel.annotate(
                f"{fmean(known):.0f}", (0, row), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=TINY, color=INK,
            )  # fmt: skip
