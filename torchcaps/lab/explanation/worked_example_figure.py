"""The worked example as one picture; a file of its own, since the example runs without matplotlib too."""

from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Polygon, Rectangle
from PIL import Image

from torchcaps.files import replace_file
from torchcaps.lab.explanation.parts_and_wholes import (
    KINDS,
    WHOLES,
    Placement,
    RoutingOutcome,
    Told,
    few_at_a_time,
    part_names,
    rank_wholes,
)

# Okabe and Ito's colors, which people with any kind of color vision can tell apart.
COLORS = {"square": "#0072B2", "triangle": "#D55E00", "bar": "#009E73", "flag": "#CC79A7"}
RIGHT = "#E69F00"
INK, FAINT = "#222222", "#B8B8B8"
COUPLING_MAP = "Greys"
SMALL, NORMAL = 7.5, 9.0
ABREAST = 5  # routings side by side
PICTURES, ROOM, LINE, VERDICT, LEGEND = 2.4, 0.66, 0.17, 0.85, 0.5  # inches


def draw(told: list[Told], path: Path) -> None:
    """Draw everything into one PNG."""
    heights = [
        PICTURES + len(few_at_a_time(each.outcomes, ABREAST)) * (ROOM + LINE * len(each.scene.parts) + VERDICT)
        for each in told
    ]
    layout = ConstrainedLayoutEngine(h_pad=0.04, w_pad=0.05, hspace=0.0)
    figure = Figure(figsize=(11.0, sum(heights) + LEGEND + 0.3), layout=layout)
    figure.suptitle("Parts vote for wholes, and routings find out which votes agree", fontsize=13, color=INK)
    rows = _below_each_other(figure, [*heights, LEGEND])
    for number, (row, height, each) in enumerate(zip(rows[:-1], heights, told, strict=True), 1):
        row.suptitle(f"Scene {number}: {each.scene.title}", x=0.01, ha="left", fontsize=11, weight="bold", color=INK)
        upper, lower = _below_each_other(row, [PICTURES, height - PICTURES])
        _draw_votes(upper, each)
        _draw_couplings(lower, each)
    _draw_legend(rows[-1])
    drawn = BytesIO()
    figure.savefig(drawn, dpi=130)
    # Line drawings have few colors: a palette makes the file a third as large.
    with replace_file(path) as file:
        Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, format="PNG", optimize=True)


def _below_each_other(figure: Figure | SubFigure, heights: list[float]) -> list[SubFigure]:
    return list(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])


def _draw_votes(figure: SubFigure, told: Told) -> None:
    panels = figure.subplots(1, 1 + len(WHOLES))
    _open_world(panels[0], "what is there")
    for number, part in enumerate(told.scene.parts, 1):
        stray = part.whole is None
        _add_shape(panels[0], part.kind, part.placement, COLORS[part.kind], filled=True, dashed=stray)
        panels[0].text(
            part.placement.x, part.placement.y, str(number),
            ha="center", va="center", fontsize=SMALL, color="white", weight="bold",
        )  # fmt: skip
    for column, (panel, whole) in enumerate(zip(panels[1:], WHOLES, strict=True)):
        _open_world(panel, f"votes for a {whole}")
        for part, votes in zip(told.scene.parts, told.votes, strict=True):
            for kind, inner in WHOLES[whole].items():
                _add_shape(panel, kind, votes[column].holding(inner), COLORS[part.kind], dashed=part.whole is None)
        for spine in panel.spines.values():
            spine.set(color=RIGHT if whole in told.scene.wholes else FAINT)
            spine.set_linewidth(2.0 if whole in told.scene.wholes else 0.8)


def _open_world(panel: Axes, title: str) -> None:
    panel.set(xlim=(-3.3, 3.3), ylim=(-2.4, 2.4), xticks=[], yticks=[], aspect="equal")
    panel.set_title(title, fontsize=NORMAL, color=INK, pad=3)
    for spine in panel.spines.values():
        spine.set(color=FAINT, linewidth=0.8)


def _add_shape(
    panel: Axes, kind: str, place: Placement, color: str, *, filled: bool = False, dashed: bool = False
) -> None:
    corners = [(corner.x, corner.y) for corner in (place.holding(Placement(x, y)) for x, y in KINDS[kind])]
    panel.add_patch(
        Polygon(
            corners,
            closed=True,
            facecolor=color if filled else "none",
            edgecolor=INK if filled else color,
            linewidth=0.8 if filled else 1.0,
            linestyle=(0, (2, 1.2)) if dashed else "-",
            alpha=0.9 if filled else 0.75,
        )
    )


def _draw_couplings(figure: SubFigure, told: Told) -> None:
    rows = few_at_a_time(told.outcomes, ABREAST)
    across = max(map(len, rows))
    panels = figure.subplots(2 * len(rows), across, height_ratios=[LINE * len(told.scene.parts), 0.48] * len(rows))
    for row, outcomes in enumerate(rows):
        for column in range(across):
            heat, verdict = panels[2 * row, column], panels[2 * row + 1, column]
            if column >= len(outcomes):
                heat.set_axis_off()
                verdict.set_axis_off()
                continue
            _draw_heat(heat, told, outcomes[column], labeled=column == 0)
            _draw_verdict(verdict, told, outcomes[column], labeled=column == 0)


def _draw_heat(panel: Axes, told: Told, outcome: RoutingOutcome, *, labeled: bool) -> None:
    """One map for each iteration, side by side: parts down, wholes across."""
    parts, wholes = len(told.scene.parts), len(WHOLES)
    gap, slots = 0.6, 3
    span = slots * wholes + (slots - 1) * gap
    iterations = len(outcome.couplings)
    start = (span - iterations * wholes - (iterations - 1) * gap) / 2
    centers, ticks, names = [], [], []
    for iteration, coupling in enumerate(outcome.couplings):
        left = start + iteration * (wholes + gap)
        panel.imshow(
            coupling, extent=(left, left + wholes, parts, 0), vmin=0.0, vmax=1.0, cmap=COUPLING_MAP, aspect="auto"
        )
        panel.add_patch(Rectangle((left, 0), wholes, parts, fill=False, edgecolor=FAINT, linewidth=0.8))
        for row, part in enumerate(told.scene.parts):
            for place, whole in enumerate(WHOLES):
                if whole == part.whole:
                    panel.add_patch(Rectangle((left + place, row), 1, 1, fill=False, edgecolor=RIGHT, linewidth=0.9))
        ticks += [left + place + 0.5 for place in range(wholes)]
        names += [whole[0].upper() for whole in WHOLES]
        centers.append(left + wholes / 2)
    panel.set(xlim=(-0.1, span + 0.1), ylim=(parts + 0.1, -0.1))
    panel.set_xticks(ticks, names, fontsize=SMALL, color=INK)
    panel.set_yticks([row + 0.5 for row in range(parts)], part_names(told.scene) if labeled else [""] * parts)
    panel.tick_params(length=0, labelsize=SMALL, labelcolor=INK, pad=2)
    for spine in panel.spines.values():
        spine.set_visible(False)
    for number, center in enumerate(centers, 1):
        label = f"iteration {number}" if number == 1 else str(number)
        label = label if outcome.couples else "equal: nothing is routed"
        panel.text(center, -0.25, label, ha="center", va="bottom", fontsize=SMALL, color=INK)
    panel.set_title(outcome.routing, fontsize=NORMAL, weight="bold", color=INK, pad=14)


def _draw_verdict(panel: Axes, told: Told, outcome: RoutingOutcome, *, labeled: bool) -> None:
    first = rank_wholes(outcome, len(told.scene.wholes))
    values = [outcome.says[whole] for whole in WHOLES]
    panel.barh(
        range(len(values)), values, height=0.72, color=["#444444" if whole in first else FAINT for whole in WHOLES]
    )
    most, least = max(1.0, *values), min(0.0, *values)
    for row, value in enumerate(values):
        panel.text(max(value, 0.0) + 0.03 * most, row, f"{value:.2f}", va="center", fontsize=SMALL, color=INK)
    panel.set(xlim=(1.1 * least, 1.28 * most), ylim=(len(values) - 0.4, -0.6), xticks=[])
    panel.set_yticks(range(len(values)), list(WHOLES) if labeled else [""] * len(values))
    panel.tick_params(length=0, labelsize=SMALL, labelcolor=INK, pad=2)
    panel.set_xlabel(outcome.measure, fontsize=SMALL, color=INK, labelpad=1)
    panel.axvline(0.0, color=FAINT, linewidth=0.8)
    for spine in panel.spines.values():
        spine.set_visible(False)


def _draw_legend(figure: SubFigure) -> None:
    handles = [Patch(facecolor=color, edgecolor=INK, linewidth=0.8, label=kind) for kind, color in COLORS.items()]
    handles += [
        Patch(facecolor="none", edgecolor=INK, linestyle=(0, (2, 1.2)), label="stray part and its votes"),
        Patch(facecolor="none", edgecolor=RIGHT, linewidth=1.6, label="what is really there"),
        Patch(facecolor="black", label="coupling 1"),
        Patch(facecolor="white", edgecolor=FAINT, label="coupling 0"),
        Patch(facecolor="#444444", label="put first by the routing"),
    ]
    figure.legend(handles=handles, loc="center", ncols=5, fontsize=SMALL + 0.5, frameon=False)
