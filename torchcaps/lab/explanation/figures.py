"""What all figures share: colors that everybody can tell apart, images as people see them, and files."""

import io
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Num
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from torchcaps.files import write_bytes
from torchcaps.lab.explanation.records import FigureRecord, as_array

Arguments = ParamSpec("Arguments")

# Okabe and Ito's colors, which people with any kind of color vision can tell apart; the most distinct ones first.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FIRST_DIGIT, SECOND_DIGIT = (0.90, 0.62, 0.0), (0.34, 0.71, 0.91)  # two of them, which add up to nearly white
INK, FAINT = "#222222", "#B8B8B8"
SEQUENTIAL, DIVERGING = "viridis", "PuOr"
TINY, SMALL, NORMAL, LARGE = 6.5, 8.0, 9.5, 11.0
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "torchcaps",  # the same picture is the same file
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.labelsize": SMALL,
    "axes.titlesize": NORMAL,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "font.size": SMALL,
    "text.parse_math": False,  # names of classes are names, whatever dollar signs they have
    "axes.unicode_minus": True,
}


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """An empty figure of so many inches, laid out so that nothing is cut off."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        if title:
            figure.suptitle(title, fontsize=LARGE, color=INK)
    return figure


def drawing(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Make a function draw with our settings, whatever the user's are."""

    @wraps(draw)
    def with_settings(*arguments: Arguments.args, **named: Arguments.kwargs) -> Figure:
        with mpl.rc_context(SETTINGS):
            return draw(*arguments, **named)

    return with_settings


def use_log_scale(panel: Axes) -> None:
    """A logarithmic y-axis with plain numbers: matplotlib's own labels are formulas, which are not parsed here. Within
    a decade every tick has its number, beyond that only the powers of ten."""
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    plain = FuncFormatter(lambda value, _: f"{value:.3g}")
    panel.yaxis.set_major_formatter(plain)
    panel.yaxis.set_minor_formatter(plain if high < 10 * low else NullFormatter())


def legend_below(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], note: str = "", columns: int = 2
) -> None:
    """A legend under all panels, with a note above it."""
    figure.legend(
        list(handles), list(labels), loc="outside lower center", ncols=max(1, min(columns, len(labels))),
        frameon=False, title=note or None, title_fontsize=SMALL,
    )  # fmt: skip


def render(figure: Figure, ending: Literal["png", "svg"]) -> bytes:
    """A figure as the bytes of a file. The dots per inch of an SVG are those of the images inside it."""
    drawn = io.BytesIO()
    dots, metadata = (130, {}) if ending == "png" else (200, {"Date": None})
    with mpl.rc_context(SETTINGS):
        figure.savefig(drawn, format=ending, dpi=dots, metadata=metadata)
    return drawn.getvalue()


def save_figure(figure: Figure, folder: str | Path, name: str, record: FigureRecord | None = None) -> list[Path]:
    """Write a figure as PNG and SVG and the numbers that it shows beside it as NPZ; the paths that were written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for ending in ("png", "svg"):
        paths.append(folder / f"{name}.{ending}")
        write_bytes(paths[-1], render(figure, ending))
    if record is not None:
        paths.append(folder / f"{name}.npz")
        record.save(paths[-1])
    return paths


def show_pixels(images: Num[Tensor, "n channel row column"]) -> Float[np.ndarray, "n row column color"]:
    """Images as people see them, 0 to 1: one channel or three; of a stereo pair the left one.

    Standardized images, which leave 0 to 1, are stretched to fit it, each by itself.
    """
    array = as_array(images).astype(np.float32)
    array = np.moveaxis(array if array.shape[1] in (1, 3) else array[:, :1], 1, -1)
    low, high = array.min((1, 2, 3), keepdims=True), array.max((1, 2, 3), keepdims=True)
    outside = (low < 0) | (high > 1)
    return np.where(outside, (array - low) / np.maximum(high - low, 1e-12), array)


def show_image(panel: Axes, image: Float[np.ndarray, "row column color"], *, title: str = "", **options: float) -> None:
    """Put one image into a panel, without ticks."""
    gray = image.shape[-1] == 1
    panel.imshow(image[..., 0] if gray else image, cmap="gray" if gray else None, vmin=0.0, vmax=1.0)
    bare(panel)
    if title:
        panel.set_title(title, fontsize=SMALL, color=INK, pad=3)


def bare(panel: Axes) -> None:
    """Take away ticks and frame."""
    panel.set_xticks([])
    panel.set_yticks([])
    for spine in panel.spines.values():
        spine.set_visible(False)


def grid_of_panels(figure: Figure, rows: int, columns: int, **options: object) -> np.ndarray:
    """Panels as an array of rows and columns, however few there are."""
    return figure.subplots(rows, columns, squeeze=False, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]


def in_words(names: Sequence[str], most: int = 4) -> str:
    """A few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
