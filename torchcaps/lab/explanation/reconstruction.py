"""What a network's class capsules say the image looked like (Sabour 2017, Fig. 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.lab.explanation.figures import INK, SMALL, drawing, grid_of_panels, new_figure, show_image, show_pixels
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.tracing.networks import evaluating, require_decoder
from torchcaps.models.base import device_of


@dataclass(frozen=True)
class Reconstructions(FigureRecord):
    """Images, and what the decoder draws from the capsule of their label and from that of the prediction."""

    image: Float[np.ndarray, "n row column color"]
    label: Int[np.ndarray, "n"]
    predicted: Int[np.ndarray, "n"]
    from_label: Float[np.ndarray, "n row column color"]
    from_predicted: Float[np.ndarray, "n row column color"]
    error: Float[np.ndarray, "n"]  # sum of squared differences between image and reconstruction from the label
    classes: tuple[str, ...]


@torch.no_grad()
def reconstruct(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    labels: Int[Tensor, "n"],
    classes: Sequence[str] | None = None,
    *,
    target: Float[Tensor, "n channel row column"] | None = None,
) -> Reconstructions:
    """Reconstruct images. ``target`` is what the decoder was trained to draw, if that is not the model's input."""
    net, decoder = require_decoder(model)
    if labels.ndim != 1:
        raise ValueError(f"one class number for each image; got labels of shape {tuple(labels.shape)}: see overlaps")
    place = device_of(model)
    images, labels = images.to(place), labels.to(place)
    with evaluating(net):
        prediction = net(images)
        predicted = prediction.logits.argmax(-1)
        decoded = decoder(prediction.capsules, torch.stack((labels, predicted), -1))
    target = images if target is None else target.to(place)
    error = (decoded[:, 0] - target).square().flatten(1).sum(-1)
    return Reconstructions(
        show_pixels(target),
        as_array(labels),
        as_array(predicted),
        show_pixels(decoded[:, 0]),
        show_pixels(decoded[:, 1]),
        as_array(error),
        class_names(classes, prediction.logits.shape[-1]),
    )


@drawing
def draw_reconstructions(record: Reconstructions, title: str = "Reconstructions", most: int = 12) -> Figure:
    """Images above, reconstructions below, with (label, prediction, decoded from). A wrong prediction has two columns,
    decoded from the label and from the prediction, and comes last: it shows what was confused."""
    right = np.flatnonzero(record.label == record.predicted)
    wrong = np.flatnonzero(record.label != record.predicted)[: max(1, most // 4)]
    right = right[: max(0, most - 2 * len(wrong))]
    columns = [(n, False) for n in right] + [(n, source) for n in wrong for source in (False, True)]
    columns = columns[:most]
    figure = new_figure(max(4.2, 0.86 * len(columns) + 0.6), 2.9, title)
    panels = grid_of_panels(figure, 2, len(columns))
    for column, (n, by_prediction) in enumerate(columns):
        label, predicted = (record.classes[k] for k in (record.label[n], record.predicted[n]))
        source, decoded = (predicted, record.from_predicted) if by_prediction else (label, record.from_label)
        show_image(panels[0, column], record.image[n])
        show_image(panels[1, column], decoded[n])
        panels[0, column].set_title(f"{label}\n{predicted}\n{source}", fontsize=SMALL, color=INK, pad=3)
        if label != predicted:
            for panel in panels[:, column]:
                panel.patch.set_visible(True)
                for spine in panel.spines.values():
                    spine.set(visible=True, color="#D55E00", linewidth=1.6)
    panels[0, 0].set_ylabel("input", fontsize=SMALL, color=INK)
    panels[1, 0].set_ylabel("decoded", fontsize=SMALL, color=INK)
    panels[0, 0].text(
        -0.12, 1.02, "label\nprediction\ndrawn from",
        transform=panels[0, 0].transAxes, ha="right", va="bottom", fontsize=SMALL, color=INK,
    )  # fmt: skip
    mean = float(np.mean(record.error))
    note = f"{len(record.label)} images: squared error {mean:.1f} on average, decoded from the label"
    figure.supxlabel(note + ("; orange frame: wrong answer" if len(wrong) else ""), fontsize=SMALL, color=INK)
    return figure
