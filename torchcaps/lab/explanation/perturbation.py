"""What each number of a class capsule's pose does to the image (Sabour 2017, Fig. 4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.lab.explanation.figures import (
    DIVERGING,
    INK,
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
from torchcaps.lab.tracing.networks import evaluating, require_decoder
from torchcaps.models.base import device_of

MEASURES = ("width", "height", "thickness", "slant", "column", "row")
UNITS = ("pixels", "pixels", "pixels", "columns per row up", "pixels", "pixels")


def measure_shapes(images: Float[Tensor, "*b channel row column"]) -> Float[Tensor, "*b measure"]:
    """Width, height, thickness, slant, column and row of the shape in each image, in the order of ``MEASURES``.

    All come from the brightness as it is, without a threshold, so that they move smoothly with the image. Width and
    height are those of an evenly bright box with the same spread; the width is that of the upright shape, with the
    slant taken out. Thickness is twice the area by the length of the outline. Slant is how many columns the shape
    leans to the right for each row up; column and row are the place of its center.

    >>> bar = torch.zeros(1, 20, 20)
    >>> bar[:, 4:16, 8:11] = 1.0
    >>> [round(number, 1) + 0.0 for number in measure_shapes(bar).tolist()]
    [3.0, 12.0, 2.4, 0.0, 9.0, 9.5]
    """
    ink = images.double().mean(-3).clamp_min(0.0)
    rows = torch.arange(ink.shape[-2], dtype=ink.dtype, device=ink.device)
    columns = torch.arange(ink.shape[-1], dtype=ink.dtype, device=ink.device)
    area = ink.sum((-2, -1)).clamp_min(1e-9)
    share = ink / area[..., None, None]
    row = (share.sum(-1) * rows).sum(-1)
    column = (share.sum(-2) * columns).sum(-1)
    down, across = rows - row[..., None], columns - column[..., None]
    row_variance = (share.sum(-1) * down.square()).sum(-1)
    column_variance = (share.sum(-2) * across.square()).sum(-1)
    together = torch.einsum("...yx,...y,...x->...", share, down, across)
    slant = -together / row_variance.clamp_min(1e-9)
    upright = (column_variance - together * together / row_variance.clamp_min(1e-9)).clamp_min(0.0)
    # The variance of an even stretch of n pixels is (n² - 1) / 12.
    width, height = (12.0 * upright + 1.0).sqrt(), (12.0 * row_variance + 1.0).sqrt()
    padded = torch.nn.functional.pad(ink, (1, 1, 1, 1))
    outline = padded.diff(dim=-1).abs().sum((-2, -1)) + padded.diff(dim=-2).abs().sum((-2, -1))
    thickness = 2.0 * area / outline.clamp_min(1e-9)
    return torch.stack((width, height, thickness, slant, column, row), -1).to(images.dtype)


OFFSETS = tuple(round(0.05 * step, 2) for step in range(-5, 6))
"""The paper's: from -0.25 to 0.25 in steps of 0.05."""


@dataclass(frozen=True)
class Perturbations(FigureRecord):
    """What is decoded with one number of the pose moved: for each example, dimension and offset an image."""

    image: Float[np.ndarray, "n row column color"]
    label: Int[np.ndarray, "n"]
    pose: Float[np.ndarray, "n d"]
    offset: Float[np.ndarray, "s"]
    plain: Float[np.ndarray, "n row column color"]
    decoded: Float[np.ndarray, "n d s row column color"]
    classes: tuple[str, ...]


@torch.no_grad()
def perturb(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    labels: Int[Tensor, "n"],
    classes: Sequence[str] | None = None,
    *,
    offsets: Sequence[float] = OFFSETS,
) -> Perturbations:
    """Move each dimension of the label's capsule by each of the offsets, and draw."""
    net, decoder = require_decoder(model)
    if not offsets:
        raise ValueError("nothing to draw without offsets; give some, such as (-0.25, 0.0, 0.25)")
    images, labels = images.to(device_of(model)), labels.to(device_of(model))
    with evaluating(net):
        capsules = net(images).capsules
        assert capsules is not None
        plain = decoder(capsules, labels)
        moves = _moves(capsules.pose, offsets)  # (d s) d
        decoded = [
            decoder(Capsules(_move(pose, label, moves)), label.expand(len(moves)))
            for pose, label in zip(capsules.pose, labels, strict=True)
        ]
    dimensions = capsules.pose.shape[-1]
    stacked = torch.stack(decoded)
    pose = capsules.pose[torch.arange(len(labels), device=labels.device), labels]
    return Perturbations(
        show_pixels(images),
        as_array(labels),
        as_array(pose),
        np.asarray(offsets, dtype=np.float32),
        show_pixels(plain),
        rearrange(show_pixels(stacked.flatten(0, 1)), "(n d s) y x c -> n d s y x c", n=len(labels), d=dimensions),
        class_names(classes, capsules.pose.shape[-2]),
    )


def _moves(like: Tensor, offsets: Sequence[float]) -> Float[Tensor, "ds d"]:
    """One row for each dimension and offset: zero but for the offset in its dimension."""
    unit = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return rearrange(unit[:, None] * like.new_tensor(offsets)[:, None], "d s e -> (d s) e")


def _move(pose: Float[Tensor, "k d"], label: Int[Tensor, ""], moves: Float[Tensor, "m d"]) -> Float[Tensor, "m k d"]:
    """Copies of one example's class capsules, with that of the label moved."""
    copies = repeat(pose, "k d -> m k d", m=len(moves)).clone()
    copies[:, label] += moves
    return copies


@dataclass(frozen=True)
class DimensionEffects(FigureRecord):
    """What each dimension of a pose does to the shape that is decoded.

    ``correlation`` is that of the offset with each measure, over all offsets and examples, after each example's mean
    is taken away; ``change`` is by how much a measure grows from the lowest offset to the highest, by the line that
    fits best.
    """

    correlation: Float[np.ndarray, "d measure"]
    change: Float[np.ndarray, "d measure"]
    reach: tuple[float, float]
    examples: int
    measures: tuple[str, ...] = MEASURES
    units: tuple[str, ...] = UNITS


def dimension_effects(record: Perturbations) -> DimensionEffects:
    """Measure what every dimension does: width, height, thickness, slant and place of what is decoded."""
    decoded = torch.from_numpy(np.ascontiguousarray(np.moveaxis(record.decoded, -1, -3)))
    measured = measure_shapes(decoded).double().numpy()  # n d s measure
    offset = record.offset.astype(np.float64)
    if len(offset) < 2 or np.ptp(offset) == 0.0:
        raise ValueError(f"offsets {offset.tolist()} do not move anything; give at least two different ones")
    centered = measured - measured.mean(2, keepdims=True)
    moved = (offset - offset.mean())[None, None, :, None]
    together = (centered * moved).sum((0, 2))
    spread = np.sqrt((centered**2).sum((0, 2)) * (moved**2).sum() * len(measured))
    correlation = np.divide(together, spread, out=np.zeros_like(together), where=spread > 1e-9)
    slope = together / ((moved**2).sum() * len(measured))
    return DimensionEffects(
        correlation.astype(np.float32),
        (slope * np.ptp(offset)).astype(np.float32),
        (float(offset.min()), float(offset.max())),
        len(measured),
    )


@drawing
def draw_perturbations(
    record: Perturbations, title: str = "", *, example: int = 0, effects: DimensionEffects | None = None
) -> Figure:
    """One row for each dimension, one column for each offset; with ``effects``, what the dimension does most."""
    dimensions, steps = record.decoded.shape[1:3]
    name = record.classes[record.label[example]]
    width, height = 0.46 * steps + 1.0 + (1.9 if effects else 0.0), 0.46 * dimensions + 1.3
    figure = new_figure(width, height, title or f"Each dimension of the capsule of “{name}” moved")
    ratios = [1.0] * steps + ([4.2] if effects else [])
    panels = grid_of_panels(figure, dimensions, len(ratios), width_ratios=ratios)
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0.0, hspace=0.0)  # pyright: ignore
    middle = int(np.argmin(np.abs(record.offset)))
    for d in range(dimensions):
        for s in range(steps):
            show_image(panels[d, s], record.decoded[example, d, s])
        panels[d, 0].set_ylabel(str(d + 1), rotation=0, ha="right", va="center", fontsize=SMALL, color=INK)
        if effects is not None:
            bare(panels[d, -1])
            panels[d, -1].text(0.0, 0.5, _in_words(effects, d), va="center", fontsize=TINY, color=INK)
    for s, offset in enumerate(record.offset):
        text = "as it is" if s == middle and offset == 0.0 else f"{offset:+.2f}".replace("-", "−")
        panels[0, s].set_title(text, fontsize=TINY, color=INK, pad=2)
    figure.supxlabel("added to the dimension", fontsize=SMALL, color=INK)
    figure.supylabel("dimension of the pose", fontsize=SMALL, color=INK)
    return figure


def _in_words(effects: DimensionEffects, dimension: int, least: float = 0.3) -> str:
    """The two measures that follow a dimension most closely."""
    correlation = effects.correlation[dimension]
    order = np.argsort(-np.abs(correlation))[:2]
    said = [
        f"{effects.measures[m]} {effects.change[dimension, m]:+.1f} (r {correlation[m]:+.2f})"
        for m in order
        if abs(correlation[m]) >= least
    ]
    return ("\n".join(said) or "nothing that was measured").replace("-", "−")


@drawing
def draw_effects(record: DimensionEffects, title: str = "What each dimension of the pose does") -> Figure:
    """Correlation of every dimension with every measure, with the change over the whole reach in each cell."""
    dimensions, measures = record.correlation.shape
    figure = new_figure(1.15 * measures + 1.6, 0.28 * dimensions + 1.7, title)
    panel = grid_of_panels(figure, 1, 1)[0, 0]
    picture = panel.imshow(record.correlation, cmap=DIVERGING, vmin=-1.0, vmax=1.0, aspect="auto")
    for d in range(dimensions):
        for m in range(measures):
            dark = abs(record.correlation[d, m]) > 0.7
            text = f"{record.change[d, m]:+.2f}".replace("-", "−")
            panel.text(m, d, text, ha="center", va="center", fontsize=TINY, color="white" if dark else INK)
    labels = [f"{name}\n[{unit}]" for name, unit in zip(record.measures, record.units, strict=True)]
    panel.set_xticks(range(measures), labels)
    panel.set_yticks(range(dimensions), [str(d + 1) for d in range(dimensions)])
    panel.tick_params(length=0)
    panel.set_ylabel("dimension of the pose")
    low, high = record.reach
    panel.set_xlabel(
        f"in each cell: change from {low:+.2f} to {high:+.2f}, over {record.examples} images".replace("-", "−")
    )
    figure.colorbar(picture, ax=panel, label="correlation with the offset", shrink=0.9)
    return figure
