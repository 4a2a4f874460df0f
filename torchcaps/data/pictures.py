"""Image files, decoded without trusting them: a few common formats, a limit on their size, one kind of error."""

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.data.base import DataError
from torchcaps.data.files import need

FORMATS = ("PNG", "JPEG", "BMP", "PPM", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".webp")
MAX_SIDE = 4096
GREY = {"1", "L", "LA", "I", "I;16", "F"}


class _Measured(io.BufferedReader):
    """A file that is never asked for more than it has: Python would allocate what a lying chunk length asks for."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def _opened(data: bytes | Path, name: str) -> Iterator[Any]:
    """The image, header read, pixels not yet; every failure of a decoder becomes one error that names the file."""
    images = need("PIL.Image", "pillow")
    # Decoders raise nearly anything for broken bytes (struct.error, SyntaxError, ...), and warn before they do.
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            io.BytesIO(data) if isinstance(data, bytes) else _Measured(io.FileIO(data)) as file,
            images.open(file, formats=FORMATS) as image,
        ):
            if max(image.size) > MAX_SIDE:
                raise DataError(f"{name}: {image.width}×{image.height} pixels; at most {MAX_SIDE} on a side are read")
            yield image
    except DataError:
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        raise DataError(f"{name}: not a whole image ({what[:120]}); replace it") from error


def size_of(data: bytes | Path, name: str) -> tuple[int, int, bool]:
    """Rows, columns and whether the image is grey, from its header alone."""
    with _opened(data, name) as image:
        return image.height, image.width, image.mode in GREY


def decode(data: bytes | Path, name: str, *, grey: bool) -> np.ndarray:
    """The pixels as bytes: (1, row, column) if grey is wanted, else (3, row, column)."""
    with _opened(data, name) as image:
        if grey and image.mode.startswith("I"):  # 16 bits, which a plain conversion would clip to white
            pixels = np.asarray(image.convert("I"))
            return (pixels.clip(0, 65535) >> 8).astype(np.uint8)[None]
        pixels = np.array(image.convert("L" if grey else "RGB"))
    return pixels[None] if grey else pixels.transpose(2, 0, 1)
