"""The figure of the stage: a panel for each set of data, and one for the time of a step."""

from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from torchcaps.campaign.places import Places
from torchcaps.campaign.plan import ROUTINGS, SCENES
from torchcaps.campaign.stage import Stand, stands
from torchcaps.explain.figures import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    TINY,
    drawing,
    grid_of_panels,
    legend_below,
    new_figure,
)


@drawing
def draw_stage(places: Places) -> Figure:
    """Accuracies with their intervals, clean and distorted, and what a training step takes."""
    found = stands(places)
    figure = new_figure(10.0, 3.0, "Five routings on one stage: same backbone, votes, loss and length")
    *scenes, times = grid_of_panels(figure, 1, len(SCENES) + 1, sharey=True)[0]
    for panel, data in zip(scenes, SCENES, strict=True):
        for row, routing in enumerate(ROUTINGS):
            _draw_stand(panel, row, found[routing][data])
        panel.set_title(data)
        panel.set_xlabel("accuracy [%]")
    for row, routing in enumerate(ROUTINGS):
        steps = [one.step for one in found[routing].values() if one.step is not None]
        if len(steps) == len(SCENES):
            times.barh(row, fmean(steps), height=0.5, color=COLOURS[5])
            times.annotate(
                f"{fmean(steps):.0f}", (0, row), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=TINY, color=INK,
            )  # fmt: skip
    times.set_title("training step")
    times.set_xlabel("mean of the four [ms]")
    scenes[0].set_yticks(range(len(ROUTINGS)), list(ROUTINGS))
    scenes[0].set_ylim(len(ROUTINGS) - 0.4, -0.6)
    for panel in (*scenes, times):
        panel.grid(axis="x", color=FAINT, linewidth=0.4)
    handles = [
        scenes[0].plot([], [], MARKERS[0], color=COLOURS[0])[0],
        scenes[0].plot([], [], MARKERS[1], color=COLOURS[1])[0],
    ]
    legend_below(figure, handles, ("test images, 95 % over seeds", "distorted test images, one seed"))
    return figure


def _draw_stand(panel: Axes, row: int, one: Stand) -> None:
    if one.accuracy is not None:
        low, high = one.accuracy.interval
        panel.plot([100 * low, 100 * high], [row, row], color=COLOURS[0], linewidth=2.5, solid_capstyle="butt")
        panel.plot(100 * one.accuracy.value, row, MARKERS[0], color=COLOURS[0])
    if one.distorted is not None:
        panel.plot(one.distorted, row, MARKERS[1], color=COLOURS[1])
