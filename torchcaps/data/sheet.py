"""A contact sheet: examples of a dataset side by side with their labels, as one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.base import Batch, DataError, Dataset, choose_evenly
from torchcaps.data.files import need
from torchcaps.files import replace_file

INK, PAPER, EDGE = 32, 250, 8
CAPTION = 16  # pixels of height for a line of text
SMALLEST = 84  # pixels on a side below which images are enlarged, by a whole factor


def caption(label: Tensor, classes: Sequence[str]) -> str:
    """A label in words: one class, or several where the label is a multi-hot row.

    >>> caption(torch.tensor([1.0, 0.0, 1.0]), "abc")
    'a + c'
    """
    chosen = label.nonzero()[:, 0].tolist() if label.ndim else [int(label)]
    return " + ".join(classes[index] for index in chosen) or "none"


def panel(image: Tensor) -> np.ndarray:
    """One example as (row, column, 3) bytes: gray, color, or the two halves of a stereo pair side by side."""
    channels = len(image)
    if channels == 2:
        image = torch.cat([image[:1], image[1:]], dim=2)
    elif channels not in (1, 3):
        raise DataError(f"images of {channels} channels cannot be shown; 1 (gray), 2 (stereo) and 3 (color) can")
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).expand(3, -1, -1)
    factor = max(1, -(-SMALLEST // min(pixels.shape[1:])))
    return pixels.permute(1, 2, 0).repeat_interleave(factor, 0).repeat_interleave(factor, 1).numpy()


def contact_sheet(dataset: Dataset, count: int = 40, columns: int = 10) -> Any:
    """``count`` examples in a grid, as a Pillow image."""
    draw, fonts, images = need("PIL.ImageDraw", "pillow"), need("PIL.ImageFont", "pillow"), need("PIL.Image", "pillow")
    batch: Batch = dataset.batch(choose_evenly(count, len(dataset)))
    panels = [panel(image) for image in batch.image]
    height, width = panels[0].shape[:2]
    if width > 1.5 * height:  # pairs are wide: fewer in a row
        columns = max(1, columns // 2)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    down, across = height + CAPTION + EDGE, width + EDGE
    sheet = images.new("RGB", (columns * across + EDGE, rows * down + CAPTION + 2 * EDGE), (PAPER,) * 3)
    pen, font = draw.Draw(sheet), fonts.load_default(size=12)
    title = f"{dataset.name} / {dataset.split}: {len(panels)} of {len(dataset):,}"
    pen.text((EDGE, EDGE // 2), title, fill=(INK,) * 3, font=font)
    for number, (pixels, label) in enumerate(zip(panels, batch.label, strict=True)):
        left, top = EDGE + number % columns * across, CAPTION + EDGE + number // columns * down
        sheet.paste(images.fromarray(pixels), (left, top))
        words = _shorten(caption(label, dataset.classes), width, font)
        pen.text((left, top + height + 1), words, fill=(INK,) * 3, font=font)
    return sheet


def _shorten(words: str, width: int, font: Any) -> str:
    if font.getlength(words) <= width:
        return words
    while words and font.getlength(words + "…") > width:
        words = words[:-1]
    return words + "…"


def save(sheet: Any, path: Path) -> None:
    """Write the picture whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            sheet.save(file, format="PNG")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error}); name another file with --out") from error
