"""Pages that need nothing but themselves: one HTML file with its style, charts and pictures inside."""

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from torchcaps.files import write_text

STYLE, SCRIPT = (Path(__file__).with_name(name) for name in ("page.css", "page.js"))


def page(title: str, body: Iterable[str]) -> str:
    """A whole HTML page; the parts of the body are HTML already."""
    style, script = (path.read_text(encoding="utf-8") for path in (STYLE, SCRIPT))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def anchor(title: str) -> str:
    """What a heading is called in links.

    >>> anchor("Where the parts went: EM routing")
    'where-the-parts-went-em-routing'
    """
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def contents(titles: Iterable[str]) -> str:
    """Links to the sections of these titles."""
    links = "".join(f'<li><a href="#{anchor(title)}">{escape(title)}</a></li>' for title in titles)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def section(title: str, about: str, *parts: str) -> str:
    """A part of the page: a heading, a line that says what there is to see, and what there is."""
    line = f"<p>{escape(about)}</p>\n" if about else ""
    return f'<section id="{anchor(title)}">\n<h2>{escape(title)}</h2>\n{line}' + "\n".join(parts) + "\n</section>"


def absent(title: str, why: str) -> str:
    """In place of a section that cannot be: why not."""
    heading = f'<section id="{anchor(title)}">\n<h2>{escape(title)}</h2>'
    return f'{heading}\n<p class="absent">Left out: {escape(why)}</p>\n</section>'


def figure(source: str, alt: str, caption: str) -> str:
    """A figure as wide as it wants to be, at most as the page; the caption is HTML already."""
    image = f'<img class="figure" src="{escape(source)}" alt="{escape(alt)}">'
    return f"<figure><div class=wide>{image}</div><figcaption>{caption}</figcaption></figure>"


def svg_source(svg: bytes) -> str:
    """An SVG inside the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of plain text; the columns of these numbers keep to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(
                f"<{tag}{' class=n' if column in numbers else ''}>{escape(cell)}</{tag}>"
                for column, cell in enumerate(cells)
            )
            + "</tr>"
        )

    lines = [line("th", header), *(line("td", row) for row in rows)]
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """The figures that matter most, in large letters: name, value, and a line below."""
    parts = [
        f'<div><div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
        f'<div class="more">{escape(more)}</div></div>'
        for name, value, more in values
    ]
    return '<div class="tiles">\n' + "\n".join(parts) + "\n</div>"


def facts(values: Iterable[tuple[str, str]]) -> str:
    """Names and values beside each other; values that are empty are left out."""
    parts = [f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values if value]
    return '<dl class="facts">\n' + "\n".join(parts) + "\n</dl>"


def write(path: Path, text: str) -> Path:
    """Write the page whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


HEAT = ((0, 0, 0), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))  # from dark to bright, evenly


def png(pixels: UInt8[np.ndarray, "row column 3"]) -> bytes:
    """Pixels as the bytes of a PNG file."""
    rows, columns, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Before every row its filter, 0: none.
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, columns * 3)], axis=1)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    packed = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def pixels(image: Float[Tensor, "channel row column"]) -> UInt8[np.ndarray, "row width 3"]:
    """An image, 0 to 1, as bytes: gray, color, or the channels side by side where there are two or more than three."""
    if len(image) not in (1, 3):
        image = torch.cat(list(image[:, None]), dim=2)
    whole = (image.detach().float().cpu().clamp(0, 1) * 255).round().to(torch.uint8).expand(3, -1, -1)
    return whole.permute(1, 2, 0).contiguous().numpy()


def stretch(image: Float[Tensor, "channel row column"]) -> Float[Tensor, "channel row column"]:
    """An input of any range as an image: its darkest value black, its brightest white. What is 0 to 1 stays."""
    low, high = float(image.min()), float(image.max())
    if low >= 0 and high <= 1:
        return image
    return (image - low) / max(high - low, 1e-12)


def heat(values: Float[Tensor, "row column"]) -> Float[Tensor, "3 row column"]:
    """Values, 0 to 1, as colors from black over red to yellow."""
    scale = torch.tensor(HEAT, dtype=torch.float32) / 255
    place = values.detach().float().cpu().clamp(0, 1) * (len(HEAT) - 1)
    below = place.long().clamp_max(len(HEAT) - 2)
    share = (place - below)[..., None]
    return (scale[below] * (1 - share) + scale[below + 1] * share).movedim(-1, 0)


def pixels_wide(image: Float[Tensor, "channel row column"], height: int) -> int:
    """How wide an image is when shown so many pixels high."""
    beside = 1 if len(image) in (1, 3) else len(image)
    return round(height * beside * image.shape[2] / image.shape[1])


def picture(image: Float[Tensor, "channel row column"], alt: str, height: int = 72) -> str:
    """An image as an element of a page, shown so many pixels high."""
    width = pixels_wide(image, height)
    data = base64.b64encode(png(pixels(image))).decode()
    size = f'width="{width}" height="{height}"'
    return f'<img class="pixels" alt="{escape(alt, quote=True)}" {size} src="data:image/png;base64,{data}">'


def add_caption(image: str, caption: str) -> str:
    """A picture with words below; the words are HTML already."""
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
