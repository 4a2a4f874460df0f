"""Pictures inside a page: PNG files written by hand, since an image of bytes needs no library for that."""

import base64
import struct
import zlib
from html import escape

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

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


def stretched(image: Float[Tensor, "channel row column"]) -> Float[Tensor, "channel row column"]:
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


def captioned(image: str, caption: str) -> str:
    """A picture with words below; the words are HTML already."""
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
