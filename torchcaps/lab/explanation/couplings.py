"""Couplings: where every position of an image is routed, flows from layer to layer, entropy, and their figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from torch import Tensor, nn

from torchcaps.lab.explanation.figures import (
    COLORS,
    FAINT,
    INK,
    MARKERS,
    SEQUENTIAL,
    SMALL,
    TINY,
    bare,
    drawing,
    grid_of_panels,
    new_figure,
    show_image,
    show_pixels,
)
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.tracing.networks import grid_on_image, require_capsules
from torchcaps.lab.tracing.traces import LayerTrace, trace_with_logits


@dataclass(frozen=True)
class Couplings(FigureRecord):
    """Where the parts of images went, at each iteration ``t``.

    ``share`` is what part of a position's presence goes to each class through all layers: the shares of a position
    sum to one (to less where a routing lets parts belong to nothing, to zero where no parent looks). ``presence`` is
    the mean presence of a position's capsules. ``extent`` is where the grid lies on the image, in pixels: left, right,
    bottom, top.

    ``flow`` has for each layer what goes from each type of child to each type of parent, as parts of all presence;
    ``entropy`` how evenly children are shared out, 0 to 1, and ``layer_iterations`` how many of its iterations count:
    layers with fewer repeat their last.
    """

    share: Float[np.ndarray, "n t row column k"]
    presence: Float[np.ndarray, "n row column"]
    extent: tuple[float, float, float, float]
    image: Float[np.ndarray, "n y x color"]
    label: Int[np.ndarray, "n m"]  # class numbers, -1 where there are fewer than the most
    probability: Float[np.ndarray, "n k"]  # of the classes, by the network's logits
    flow: tuple[Float[np.ndarray, "n t _ _"], ...]  # from types of children to types of parents
    entropy: Float[np.ndarray, "layer t n"]
    layer_iterations: tuple[int, ...]
    routings: tuple[str, ...]
    classes: tuple[str, ...]
    couples: bool = True  # whether all routings have couplings; where not, shares of agreement are in their place


@torch.no_grad()
def measure_couplings(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    labels: Int[Tensor, "n"] | Float[Tensor, "n k"] | None = None,
    classes: Sequence[str] | None = None,
) -> Couplings:
    """Trace a network on images. ``labels`` are class numbers or rows with a one for each class that is there."""
    net = require_capsules(model)
    grid = grid_on_image(net, images)
    layers, logits = trace_with_logits(net, images)
    rows, columns = grid.shape
    iterations = max(len(layer.iterations) for layer in layers)
    shares = [class_shares(layers, t) for t in range(iterations)]
    share, presence = [], layers[0].presence.unflatten(1, (rows * columns, -1))
    weight = presence / presence.sum(-1, keepdim=True).clamp_min(1e-30)
    for each in shares:
        by_type = each.unflatten(1, (rows * columns, -1))
        share.append((weight.unsqueeze(-1) * by_type).sum(2).unflatten(1, (rows, columns)))
    flows = [flows_between(layers, t) for t in range(iterations)]
    return Couplings(
        as_array(torch.stack(share, 1)),
        as_array(presence.mean(-1).unflatten(1, (rows, columns))),
        grid.extent,
        show_pixels(images),
        label_numbers(labels, len(images)),
        as_array(logits.softmax(-1)),
        tuple(as_array(torch.stack(of_layer, 1)) for of_layer in zip(*flows, strict=True)),
        np.stack([[as_array(layer.entropy(_at(layer, t))) for t in range(iterations)] for layer in layers]),
        tuple(len(layer.iterations) for layer in layers),
        tuple(layer.routing for layer in layers),
        class_names(classes, logits.shape[-1]),
        all(layer.couples for layer in layers),
    )


def class_shares(layers: Sequence[LayerTrace], iteration: int = -1) -> Float[Tensor, "b i k"]:
    """What part of each primary capsule goes to each class: couplings of all layers, one after the other."""
    last = layers[-1]
    classes = last.parents.pose.shape[-2]
    share = torch.eye(classes, device=last.parents.pose.device).expand(len(last.parents.pose), -1, -1)
    for layer, above in zip(reversed(layers), (None, *reversed(layers)), strict=False):
        if above is not None and above.presence.shape[1] != layer.parents.pose[..., 0].flatten(1).shape[1]:
            raise ValueError(
                f"layers {layer.number} and {above.number} do not follow each other, so parts cannot be followed "
                "through all layers; trace() has the couplings of each"
            )
        share = layer.shares(share.to(layer.iterations[0].coupling.dtype), _at(layer, iteration))
    return share


def flows_between(layers: Sequence[LayerTrace], iteration: int = -1) -> list[Float[Tensor, "b _ _"]]:
    """What goes from type to type in each layer, as parts of all presence of the primary capsules: what comes into a
    capsule goes on from it."""
    mass = layers[0].presence / layers[0].presence.sum(-1, keepdim=True).clamp_min(1e-30)
    flows = []
    for layer in layers:
        at = _at(layer, iteration)
        types_below, types_above = layer.children.pose.shape[-2], layer.parents.pose.shape[-2]
        coupling = layer.couplings(at)
        positions = coupling.shape[1]
        sent = layer.sent(mass, at)  # b q i j, in the order of the votes
        mass = rearrange(sent.sum(2), "b q j -> b (q j)", q=positions)
        flows.append(_by_type(layer, sent, types_below, types_above))
    return flows


def _by_type(layer: LayerTrace, sent: Float[Tensor, "b q i j"], below: int, above: int) -> Float[Tensor, "b t j"]:
    order = "(t place)" if layer.type_first else "(place t)"
    total = rearrange(sent.sum(1), f"b {order} j -> b place t j", t=below).sum(1)
    assert total.shape[-1] == above
    return total


def _at(layer: LayerTrace, iteration: int) -> int:
    """A layer with fewer iterations than others stays at its last."""
    return min(iteration, len(layer.iterations) - 1)


def label_numbers(labels: Tensor | None, count: int) -> Int[np.ndarray, "n m"]:
    """Class numbers of each example, filled up with -1."""
    if labels is None:
        return np.full((count, 1), -1, dtype=np.int64)
    if labels.ndim == 1:
        return as_array(labels.long())[:, None]
    there = [torch.nonzero(row > 0.5).flatten().tolist() for row in labels]
    most = max(1, *(len(row) for row in there))
    return np.array([row + [-1] * (most - len(row)) for row in there], dtype=np.int64)


MOST_NODES = 12
COUPLINGS, AGREEMENT = "coupling", "share of pairwise agreement"


@drawing
def draw_overlays(record: Couplings, title: str = "", *, example: int = 0, most_classes: int = 4) -> Figure:
    """The image with what part of every place goes to a class: a row for each iteration, a column for each class.

    Shown are the true classes and the most probable others. The fainter a place, the less is there.
    """
    chosen = leading_classes(record, example, most_classes)
    iterations = record.share.shape[1]
    figure = new_figure(1.75 * (len(chosen) + 1) + 0.9, 1.8 * iterations + 1.1, title or "Where the parts went")
    panels = grid_of_panels(figure, iterations, len(chosen) + 1)
    presence = record.presence[example]
    there = presence / max(float(presence.max()), 1e-12)
    picture = None
    low, high = _color_range(record, record.share[example][..., chosen])
    for t in range(iterations):
        show_image(panels[t, 0], record.image[example])
        panels[t, 0].set_ylabel(f"iteration {t + 1}", fontsize=SMALL, color=INK)
        for column, k in enumerate(chosen, 1):
            show_image(panels[t, column], 0.6 * record.image[example])
            picture = panels[t, column].imshow(
                record.share[example, t, :, :, k],
                extent=record.extent,
                cmap=SEQUENTIAL,
                vmin=low,
                vmax=high,
                alpha=0.2 + 0.6 * there,
                interpolation="nearest",
            )
            height, width = record.image.shape[1:3]
            panels[t, column].set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    panels[0, 0].set_title(f"input\n({_label_text(record, example)})", fontsize=SMALL, color=INK)
    for column, k in enumerate(chosen, 1):
        probability = f"{100 * record.probability[example, k]:.0f} %"
        panels[0, column].set_title(f"to “{record.classes[k]}”\n(probability {probability})", fontsize=SMALL, color=INK)
    assert picture is not None
    bar = figure.colorbar(picture, ax=panels[:, -1], shrink=0.8)
    bar.set_label(f"{_what(record)} of a place to the class", fontsize=SMALL)
    bar.solids.set_alpha(1.0)  # pyright: ignore
    bar.ax.axhline(1.0 / len(record.classes), color="#D55E00", linewidth=2.0)
    notes = ["orange on the scale: an even share"]
    if not record.couples:
        notes.append("this routing has no couplings: shown is what each part adds to the agreement")
    figure.supxlabel("; ".join(notes), fontsize=SMALL, color=INK)
    return figure


def _color_range(record: Couplings, shares: np.ndarray) -> tuple[float, float]:
    """From the least to the most that is shown, with the even share inside; never narrower than can be seen."""
    even = 1.0 / len(record.classes)
    low, high = min(float(shares.min()), even), max(float(shares.max()), even)
    room = max(0.0, 0.02 * even - (high - low)) / 2
    return max(0.0, low - room), high + room


def leading_classes(record: Couplings, example: int, most: int) -> list[int]:
    """The true classes, then the most probable ones, up to so many."""
    true = [int(k) for k in record.label[example] if k >= 0]
    others = [int(k) for k in np.argsort(-record.probability[example]) if k not in true]
    return (true + others)[: max(most, len(true))]


@drawing
def draw_graph(record: Couplings, title: str = "", *, example: int = 0) -> Figure:
    """A graph from part to whole for each iteration: bands as wide as what flows, bars as high as what comes in."""
    iterations = record.share.shape[1]
    shown_iterations = sorted({0, iterations - 1})
    columns = len(shown_iterations)
    layers = len(record.flow)
    width = columns * (1.7 + 1.5 * layers) + 0.4
    figure = new_figure(width, 4.6, title or "From parts to wholes")
    panels = grid_of_panels(figure, 1, columns)[0]
    colored = leading_classes(record, example, 3)
    for panel, t in zip(panels, shown_iterations, strict=True):
        _draw_flow(panel, [flow[example, t].astype(np.float64) for flow in record.flow], record, colored)
        panel.set_title(f"iteration {t + 1} of {iterations}" if iterations > 1 else "one pass", color=INK)
    note = f"widths: presence × {_what(record)}, as a part of all presence; {_label_text(record, example)}"
    figure.supxlabel(note, fontsize=SMALL, color=INK)
    return figure


def _draw_flow(panel: Axes, flows: Sequence[np.ndarray], record: Couplings, colored: Sequence[int]) -> None:
    bare(panel)
    layers = len(flows)
    stages = [_grouped_names(flows[0].shape[0], "part ")]
    orders = [_choose_nodes(flows[0].sum(1))]
    for number, flow in enumerate(flows):
        last = number == layers - 1
        orders.append(list(range(flow.shape[1])) if last and flow.shape[1] <= 20 else _choose_nodes(flow.sum(0)))
        stages.append(list(record.classes) if last else _grouped_names(flow.shape[1], f"{number + 1}."))
    grouped = [_merge(flow, below, above) for flow, below, above in zip(flows, orders[:-1], orders[1:], strict=True)]
    gap = 0.35 / max(len(order) + 1 for order in orders)
    tops = [_stack(masses, gap) for masses in [grouped[0].sum(1), *(flow.sum(0) for flow in grouped)]]
    heights = [grouped[0].sum(1), *(flow.sum(0) for flow in grouped)]
    colors = dict(zip(colored, COLORS, strict=False))
    for x, (flow, last) in enumerate(zip(grouped, [False] * (layers - 1) + [True], strict=True)):
        leaving, arriving = tops[x].copy(), tops[x + 1].copy()
        for j in range(flow.shape[1]):
            color = colors.get(orders[x + 1][j], FAINT) if last and j < len(orders[x + 1]) else FAINT
            for i in range(flow.shape[0]):
                if flow[i, j] > 0:
                    _band(panel, x, leaving[i], arriving[j], flow[i, j], color)
                    leaving[i] += flow[i, j]
                    arriving[j] += flow[i, j]
    for x, (top, height, order, names) in enumerate(zip(tops, heights, orders, stages, strict=True)):
        for n, (y, tall) in enumerate(zip(top, height, strict=True)):
            last = x == layers
            name = names[order[n]] if n < len(order) else "others"
            color = colors.get(order[n], INK) if last and n < len(order) else INK
            panel.add_patch(Rectangle((x - 0.02, y), 0.04, tall, color=color, linewidth=0))
            side, where = ("left", x + 0.04) if last else ("right", x - 0.04)
            panel.text(where, y + tall / 2, name, ha=side, va="center", fontsize=TINY, color=INK)
    bottom = max(float(top[-1] + height[-1]) for top, height in zip(tops, heights, strict=True))
    longest = max(len(name) for name in record.classes)
    panel.set(xlim=(-0.32, layers + 0.12 + 0.07 * longest), ylim=(bottom + 0.01, -0.01))


def _grouped_names(count: int, prefix: str) -> list[str]:
    return [f"{prefix}{number + 1}" for number in range(count)]


def _choose_nodes(mass: np.ndarray) -> list[int]:
    """The nodes that get a place of their own: all, or those that have most; in their order."""
    if len(mass) <= MOST_NODES:
        return list(range(len(mass)))
    return sorted(int(n) for n in np.argsort(-mass)[: MOST_NODES - 1])


def _merge(flow: np.ndarray, below: list[int], above: list[int]) -> np.ndarray:
    """Flows between the nodes that are kept, with one more row or column for all others where there are any."""
    for axis, kept in ((0, below), (1, above)):
        rest = np.setdiff1d(np.arange(flow.shape[axis]), kept)
        parts = [flow.take(kept, axis)]
        if len(rest):
            parts.append(flow.take(rest, axis).sum(axis, keepdims=True))
        flow = np.concatenate(parts, axis)
    return flow


def _stack(masses: np.ndarray, gap: float) -> np.ndarray:
    """The upper end of each bar: one below the other with gaps, centered."""
    tops = np.concatenate([[0.0], np.cumsum(masses[:-1] + gap)])
    used = float(masses.sum() + gap * (len(masses) - 1))
    return tops + (1.35 - used) / 2


def _band(panel: Axes, x: int, start: float, end: float, height: float, color: str) -> None:
    left, right, middle = x + 0.02, x + 0.98, x + 0.5
    corners = [
        (left, start), (middle, start), (middle, end), (right, end),
        (right, end + height), (middle, end + height), (middle, start + height), (left, start + height), (left, start),
    ]  # fmt: skip
    curve = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3, Outline.CLOSEPOLY]
    panel.add_patch(PathPatch(Outline(corners, curve), facecolor=color, edgecolor="none", alpha=0.55))


@drawing
def draw_entropy(record: Couplings, title: str = "How evenly children are shared out") -> Figure:
    """Entropy of the couplings for each layer and iteration: mean over the images, with the middle half of them."""
    figure = new_figure(5.2, 3.3, title)
    panel = grid_of_panels(figure, 1, 1)[0, 0]
    for number, (of_layer, routing) in enumerate(zip(record.entropy, record.routings, strict=True)):
        count = record.layer_iterations[number]
        steps = np.arange(1, count + 1)
        color = COLORS[number % len(COLORS)]
        low, high = np.quantile(of_layer[:count], [0.25, 0.75], axis=1)
        panel.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        marker = MARKERS[number % len(MARKERS)]
        label = f"layer {number + 1}: {routing}"
        panel.plot(steps, of_layer[:count].mean(1), color=color, marker=marker, label=label)
    panel.set_xticks(range(1, record.entropy.shape[1] + 1))
    panel.set(xlabel="iteration", ylim=(-0.03, 1.05))
    panel.set_ylabel(f"entropy of the {_what(record)}s\n(1: even, 0: one parent each)")
    panel.legend(frameon=False, loc="best")
    note = f"mean of {record.entropy.shape[2]} images; shaded: the middle half of them"
    figure.supxlabel(
        note + ("" if record.couples else "; without couplings: shares of agreement"), fontsize=TINY, color=INK
    )
    return figure


def _what(record: Couplings) -> str:
    return COUPLINGS if record.couples else AGREEMENT


def _label_text(record: Couplings, example: int) -> str:
    names = [f"“{record.classes[k]}”" for k in record.label[example] if k >= 0]
    return "label: " + " and ".join(names) if names else "no label"
