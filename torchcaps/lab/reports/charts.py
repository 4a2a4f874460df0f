"""Line charts as SVG inside the page: their colors are the page's, light or dark; its script shows values."""

import json
import math
from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import NamedTuple

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 52, 36
STYLES = ("first", "second", "third", "fourth", "fifth", "sixth")
MOST_POINTS = 400  # of one curve: more cannot be told apart on so many pixels


class Curve(NamedTuple):
    """A named line."""

    name: str
    points: list[tuple[float, float]]


class Range(NamedTuple):
    """A number with the least and the most that it was."""

    low: float
    middle: float
    high: float


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover a range, about so many of them.

    >>> ticks(0.0, 1.0), ticks(3.0, 1280.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 500.0, 1000.0, 1500.0])
    """
    if not high > low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def thin(points: list[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: means of neighbors."""
    size = -(-len(points) // most)
    groups = [points[start : start + size] for start in range(0, len(points), max(size, 1))]
    return [(fmean(x for x, _ in group), fmean(y for _, y in group)) for group in groups]


def line_chart(title: str, across: str, curves: Sequence[Curve], *, share: bool = False) -> str:
    """Curves over one axis; ``share`` writes values from 0 to 1 as percent."""
    shown = [
        Curve(curve.name, thin([point for point in curve.points if all(map(math.isfinite, point))])) for curve in curves
    ]
    shown = [curve for curve in shown if curve.points]
    if not shown:
        return f'<p class="faint">{escape(title)}: nothing was measured.</p>'
    horizontal = [x for curve in shown for x, _ in curve.points]
    vertical = [y for curve in shown for _, y in curve.points]
    x_ticks, y_ticks = ticks(min(horizontal), max(horizontal)), ticks(min(vertical), max(vertical))

    legend, deeper = _legend(shown)
    height = HEIGHT + deeper

    def x_place(x: float) -> float:
        return LEFT + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (WIDTH - LEFT - RIGHT)

    def y_place(y: float) -> float:
        return height - BOTTOM - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="4" y="15">{escape(title)}</text>', *legend]
    for value in y_ticks:
        y = y_place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        words = f"{round(100 * value, 9):g} %" if share else f"{value:g}"
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{words}</text>')
    for value in x_ticks:
        words = f"{value:,g}" if value >= 10_000 else f"{value:g}"
        parts.append(f'<text x="{x_place(value):.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{words}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 4}" text-anchor="middle">{escape(across)}</text>'
    )
    for number, curve in enumerate(shown):
        style = STYLES[number % len(STYLES)]
        places = [(x_place(x), y_place(y)) for x, y in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="curve {style}" points="{line}"/>')
        if len(places) <= 30:
            parts += [f'<circle class="{style}" r="2.6" cx="{x:.1f}" cy="{y:.1f}"/>' for x, y in places]
    parts.append(f'<line class="at" y1="{TOP + deeper}" y2="{height - BOTTOM}"/>')
    values = {
        "across": across,
        "curves": [
            {
                "name": curve.name,
                "points": [[round(x_place(x), 1), f"{x:,.6g}", _value(y, share)] for x, y in curve.points],
            }
            for curve in shown
        ],
    }
    inside = "\n".join(parts)
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">\n{inside}\n</svg>'
    data = escape(json.dumps(values, ensure_ascii=False), quote=True)
    return f'<div class="chart" data-values="{data}">{svg}<div class="tip" hidden></div></div>'


def _value(y: float, share: bool) -> str:
    return f"{100 * y:.2f} %" if share else f"{y:.4g}"


def _legend(curves: Sequence[Curve]) -> tuple[list[str], int]:
    """Names of the curves, in as many rows as they need, and how much deeper than one row that is."""
    parts, x, y = [], LEFT, 28
    for number, curve in enumerate(curves):
        style, wide = STYLES[number % len(STYLES)], 34 + 7 * len(curve.name)
        if x > LEFT and x + wide > WIDTH:
            x, y = LEFT, y + 18
        parts.append(f'<rect class="{style}" x="{x}" y="{y}" width="14" height="3" rx="1.5"/>')
        parts.append(f'<text x="{x + 19}" y="{y + 6}">{escape(curve.name)}</text>')
        x += wide
    return parts, y - 28


def range_chart(title: str, across: str, ranges: Sequence[Range]) -> str:
    """For each of several things a bar from the least to the most, 0 to 1, and a mark in its middle."""
    wide = (WIDTH - LEFT - RIGHT) / len(ranges)
    bar = min(0.7 * wide, 24.0)

    def place(value: float) -> float:
        return HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="4" y="15">{escape(title)}</text>']
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    every = max(1, math.ceil(len(ranges) / 16))
    for number, each in enumerate(ranges):
        x, top = LEFT + (number + 0.5) * wide, place(each.high)
        words = f"{across} {number}: {each.middle:.3g} in the mean, {each.low:.3g} to {each.high:.3g}"
        size = f'width="{bar:.1f}" height="{max(1.5, place(each.low) - top):.1f}"'
        parts.append(
            f'<g><title>{escape(words)}</title><rect class="first" opacity="0.3" x="{x - bar / 2:.1f}" y="{top:.1f}" '
            f'{size} rx="2"/><rect class="first" x="{x - bar / 2:.1f}" y="{place(each.middle) - 1.5:.1f}" '
            f'width="{bar:.1f}" height="3"/></g>'
        )
        if number % every == 0:
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{number}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(across)}</text>')
    inside = "\n".join(parts)
    return f'<div><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n{inside}\n</svg></div>'
