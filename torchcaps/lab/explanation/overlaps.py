"""Overlapping digits told apart by reconstruction (Sabour 2017, Fig. 5; Zhao 2020, Table 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor, nn

from torchcaps.lab.explanation.figures import (
    FIRST_DIGIT,
    INK,
    SECOND_DIGIT,
    SMALL,
    drawing,
    grid_of_panels,
    legend_below,
    new_figure,
    show_image,
    show_pixels,
)
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.tracing.networks import evaluating, require_decoder
from torchcaps.models.base import device_of

Source = Literal["label", "prediction", "absent"]
THERE = 0.1  # brightness from which a pixel belongs to something


@dataclass(frozen=True)
class Overlaps(FigureRecord):
    """Two objects in each image, and what the decoder draws from three pairs of capsules: those of the labels, those
    of the predictions, and the first label with a class that is neither there nor predicted."""

    image: Float[np.ndarray, "n row column color"]
    label: Int[np.ndarray, "n 2"]
    predicted: Int[np.ndarray, "n 2"]
    absent: Int[np.ndarray, "n 2"]
    from_label: Float[np.ndarray, "n 2 row column"]
    from_predicted: Float[np.ndarray, "n 2 row column"]
    from_absent: Float[np.ndarray, "n 2 row column"]
    parts: Float[np.ndarray, "n 2 row column"] | None  # the two objects by themselves, where they are known
    classes: tuple[str, ...]


@torch.no_grad()
def separate(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    labels: Int[Tensor, "n 2"] | Float[Tensor, "n k"],
    classes: Sequence[str] | None = None,
    *,
    parts: Float[Tensor, "n 2 row column"] | None = None,
) -> Overlaps:
    """Draw the two objects of each image one by one. ``labels`` are pairs of class numbers or rows with two ones;
    ``parts`` are the objects by themselves, in the order of the pairs."""
    net, decoder = require_decoder(model)
    images, pairs = images.to(device_of(model)), label_pairs(labels).to(device_of(model))
    with evaluating(net):
        prediction = net(images)
        logits = prediction.logits
        predicted = _in_order_of(logits.topk(2, -1).indices, pairs)
        absent = torch.stack((pairs[:, 0], _least_likely(logits, pairs, predicted)), -1)
        decoded = [decoder(prediction.capsules, chosen) for chosen in (pairs, predicted, absent)]
    return Overlaps(
        show_pixels(images),
        as_array(pairs),
        as_array(predicted),
        as_array(absent),
        as_array(decoded[0].mean(2)),
        as_array(decoded[1].mean(2)),
        as_array(decoded[2].mean(2)),
        None if parts is None else as_array(parts),
        class_names(classes, logits.shape[-1]),
    )


def label_pairs(labels: Int[Tensor, "n m"] | Float[Tensor, "n k"]) -> Int[Tensor, "n 2"]:
    """Pairs of class numbers, from pairs or from rows with two ones."""
    if not labels.is_floating_point():
        if labels.ndim != 2 or labels.shape[1] != 2:
            raise ValueError(f"two class numbers for each image; got labels of shape {tuple(labels.shape)}")
        return labels
    there = labels > 0.5
    if not bool((there.sum(-1) == 2).all()):
        raise ValueError("every image must have two classes; some rows of the labels have fewer or more ones")
    return there.nonzero()[:, 1].reshape(-1, 2)


def _in_order_of(found: Int[Tensor, "n 2"], pairs: Int[Tensor, "n 2"]) -> Int[Tensor, "n 2"]:
    """The same two classes with those that are right in the place of their label, so that colors can be compared."""
    swap = (found[:, 0] == pairs[:, 1]) | (found[:, 1] == pairs[:, 0])
    return torch.where(swap[:, None], found.flip(-1), found)


def _least_likely(logits: Tensor, pairs: Tensor, predicted: Tensor) -> Int[Tensor, "n"]:
    """The class that the network thinks of least, of those neither there nor predicted where there are any."""
    there = logits.scatter(-1, pairs, torch.inf)
    hidden = there.scatter(-1, predicted, torch.inf)
    hidden = torch.where(torch.isfinite(hidden).any(-1, keepdim=True), hidden, there)
    return hidden.argmin(-1)


def two_colors(decoded: Float[np.ndarray, "*n 2 row column"]) -> Float[np.ndarray, "*n row column 3"]:
    """Two gray images over each other in orange and blue; where both are bright, nearly white."""
    first, second = (np.moveaxis(decoded, -3, 0)[number][..., None] for number in (0, 1))
    return np.clip(first * np.array(FIRST_DIGIT) + second * np.array(SECOND_DIGIT), 0.0, 1.0)


@dataclass(frozen=True)
class Segmentation(FigureRecord):
    """Pixels assigned to objects: 0 to nothing, 1 to the first, 2 to the second, 3 to both.

    ``overlap`` is, for each object, the intersection of its decoded and true pixels by their union; ``accuracy`` the
    share of the bright pixels whose assignment is right.
    """

    assigned: Int[np.ndarray, "n row column"]
    true: Int[np.ndarray, "n row column"]
    overlap: Float[np.ndarray, "n 2"]
    accuracy: Float[np.ndarray, "n"]


def segment(record: Overlaps, threshold: float = 0.5) -> Segmentation:
    """Assign each bright pixel of the image to the objects whose reconstructions are bright there (by ``threshold``
    of their brightest pixel), or else to the brighter of the two."""
    if record.parts is None:
        raise ValueError("without the two objects by themselves nobody knows whose a pixel is; give parts=")
    ink = record.image.mean(-1) > THERE
    brightest = np.maximum(record.from_label.max((2, 3), keepdims=True), 1e-9)
    decoded = record.from_label / brightest > threshold
    nearest = np.argmax(record.from_label, 1)
    neither = ~decoded.any(1)
    decoded[:, 0] |= neither & (nearest == 0)
    decoded[:, 1] |= neither & (nearest == 1)
    decoded &= ink[:, None]
    true = (record.parts > THERE) & ink[:, None]
    both = (decoded & true).sum((2, 3))
    either = np.maximum((decoded | true).sum((2, 3)), 1)
    assigned, truth = (each[:, 0] + 2 * each[:, 1] for each in (decoded.astype(np.int64), true.astype(np.int64)))
    right = ((assigned == truth) & ink).sum((1, 2)) / np.maximum(ink.sum((1, 2)), 1)
    return Segmentation(assigned, truth, (both / either).astype(np.float32), right.astype(np.float32))


@drawing
def draw_overlaps(record: Overlaps, title: str = "Overlapping objects told apart", most: int = 10) -> Figure:
    """Input above, both reconstructions below, in two colors. L: labels, R: what is decoded; P: decoded from a wrong
    prediction; *: the second of the pair is neither there nor predicted."""
    columns = _columns(record, most)
    with_parts = record.parts is not None
    rows = 3 if with_parts else 2
    figure = new_figure(max(4.5, 0.95 * len(columns) + 0.7), 1.05 * rows + 1.6, title)
    panels = grid_of_panels(figure, rows, len(columns))
    for column, (n, source) in enumerate(columns):
        pair, decoded = {
            "label": (record.label, record.from_label),
            "prediction": (record.predicted, record.from_predicted),
            "absent": (record.absent, record.from_absent),
        }[source]
        mark = {"label": "R", "prediction": "P", "absent": "*R"}[source]
        names, labels = (", ".join(record.classes[k] for k in numbers) for numbers in (pair[n], record.label[n]))
        show_image(panels[0, column], record.image[n], title=f"{mark}: ({names})\nL: ({labels})")
        show_image(panels[1, column], two_colors(decoded[n]))
        if record.parts is not None:
            show_image(panels[2, column], two_colors(record.parts[n]))
    for row, name in enumerate(("input", "decoded", "really there")[:rows]):
        panels[row, 0].set_ylabel(name, fontsize=SMALL, color=INK)
    handles = [Patch(color=FIRST_DIGIT), Patch(color=SECOND_DIGIT)]
    note = (
        "L: labels   R: decoded from   P: decoded from a wrong prediction   *: second of the pair is not in the image"
    )
    legend_below(figure, handles, ["first of the pair", "second of the pair"], note)
    return figure


def _columns(record: Overlaps, most: int) -> list[tuple[int, Source]]:
    right = (np.sort(record.label, 1) == np.sort(record.predicted, 1)).all(1)
    wrong = [int(n) for n in np.flatnonzero(~right)[: max(1, most // 5)]]
    absent = [int(n) for n in np.flatnonzero(right)[: max(1, most // 5)]] or [0]
    good = [int(n) for n in np.flatnonzero(right)[: max(0, most - 2 * len(wrong) - len(absent))]]
    columns: list[tuple[int, Source]] = [(n, "label") for n in good]
    for n in wrong:
        columns.extend([(n, "label"), (n, "prediction")])
    columns.extend((n, "absent") for n in absent)
    return columns


ASSIGNED = np.array([(0.0, 0.0, 0.0), FIRST_DIGIT, SECOND_DIGIT, (1.0, 1.0, 1.0)])


@drawing
def draw_segmentation(record: Overlaps, segmented: Segmentation, title: str = "", most: int = 8) -> Figure:
    """Input, pixels as assigned, and pixels as they really belong: to the first, to the second, to both."""
    count = min(most, len(record.image))
    figure = new_figure(max(4.5, 0.95 * count + 0.7), 4.7, title or "Whose each pixel is")
    panels = grid_of_panels(figure, 3, count)
    for n in range(count):
        names = ", ".join(record.classes[k] for k in record.label[n])
        show_image(panels[0, n], record.image[n], title=f"({names})\n{100 * segmented.accuracy[n]:.0f} % right")
        show_image(panels[1, n], ASSIGNED[segmented.assigned[n]])
        show_image(panels[2, n], ASSIGNED[segmented.true[n]])
    for row, name in enumerate(("input", "assigned", "truth")):
        panels[row, 0].set_ylabel(name, fontsize=SMALL, color=INK)
    handles = [Patch(color=FIRST_DIGIT), Patch(color=SECOND_DIGIT), Patch(facecolor="white", edgecolor=INK)]
    mean, overlap = 100 * float(segmented.accuracy.mean()), float(segmented.overlap.mean())
    note = (
        f"{len(record.image)} images: {mean:.1f} % of bright pixels assigned rightly; mean overlap (IoU) {overlap:.2f}"
    )
    legend_below(figure, handles, ["first", "second", "both"], note, columns=3)
    return figure
