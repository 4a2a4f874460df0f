"""Image files, decoded without trusting them: a few common formats, a limit on their size, one kind of error."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.data.base import DataError
from torchcaps.data.files import need

FORMATS = ("PNG", "JPEG", "BMP", "PPM", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".webp")
MAX_SIDE = 4096
GREY = {"1", "L", "LA", "I", "I;16", "F"}


def _open(data: bytes | Path, name: str) -> Any:
    image = need("PIL.Image", "pillow").open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS)
    if max(image.size) > MAX_SIDE:
        image.close()
        raise DataError(f"{name}: {image.size[0]}×{image.size[1]} pixels; at most {MAX_SIDE} on a side are read")
    return image


def _broken(name: str, error: Exception) -> DataError:
    what = str(error) or type(error).__name__
    return DataError(f"{name}: not a whole image ({what[:120]}); replace it")


def size_of(data: bytes | Path, name: str) -> tuple[int, int, bool]:
    """Rows, columns and whether the image is grey, from its header alone."""
    # Decoders raise nearly anything for broken bytes (struct.error, SyntaxError, ...), and warn before they do.
    try:
        with warnings.catch_warnings(action="ignore"), _open(data, name) as image:
            return image.height, image.width, image.mode in GREY
    except DataError:
        raise
    except Exception as error:
        raise _broken(name, error) from error


def decode(data: bytes | Path, name: str, *, grey: bool) -> np.ndarray:
    """The pixels as bytes: (1, row, column) if grey is wanted, else (3, row, column)."""
    try:
        with warnings.catch_warnings(action="ignore"), _open(data, name) as image:
            if grey and image.mode.startswith("I"):  # 16 bits, which a plain conversion would clip to white
                pixels = np.asarray(image.convert("I"))
                return (pixels.clip(0, 65535) >> 8).astype(np.uint8)[None]
            pixels = np.array(image.convert("L" if grey else "RGB"))
    except DataError:
        raise
    except Exception as error:
        raise _broken(name, error) from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)
