"""Image files, decoded without trusting them: the one reader of all commands.

Pixels come as a viewer shows them: turned as EXIF says, transparency composed on white, 16 bits scaled to the range of
8, the first frame of several. What was done is in the ``PictureHeader``, so that it can be said.
"""

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.data.base import DataError
from torchcaps.data.files import need

FORMATS = ("PNG", "JPEG", "BMP", "PPM", "WEBP", "GIF", "TIFF")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".webp", ".gif", ".tif", ".tiff")
SIGNATURES = (
    b"\x89PNG",
    b"\xff\xd8",
    b"BM",
    b"GIF8",
    b"RIFF",
    b"II*\0",
    b"MM\0*",
    b"P1",
    b"P2",
    b"P3",
    b"P4",
    b"P5",
    b"P6",
)
MAX_SIDE = 16_384
MAX_PIXELS = 64_000_000  # photographs of telephones have up to 50 million
GRAY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "F"}
WIDTH, BITS, PHOTOMETRIC, ORIENTATION = 256, 258, 262, 274  # tags of TIFF and EXIF
UPRIGHT = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
"""What turns an image upright, for the orientations 2 to 8; from the fifth on, rows become columns."""
Size = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class PictureHeader:
    """What a file says of its image before the pixels are read; rows and columns are those after turning."""

    rows: int
    columns: int
    gray: bool
    turned: bool = False
    transparent: bool = False
    deep: bool = False  # more than 8 bits
    frames: bool = False  # more than one

    def changes(self) -> list[str]:
        """What reading does to the image, in words."""
        done = {
            "turned upright (EXIF)": self.turned,
            "transparency on white": self.transparent,
            "16 bits scaled": self.deep,
            "first frame": self.frames,
        }
        return [words for words, true in done.items() if true]


class _Measured(io.BufferedReader):
    """A file that is never asked for more than it has: Python would allocate what a lying chunk length asks for."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def _open(data: bytes | Path, name: str) -> Iterator[Any]:
    """The image, header read, pixels not yet; every failure of a decoder becomes one error that names the file."""
    images = need("PIL.Image", "pillow")
    if isinstance(data, Path) and data.is_dir():
        raise DataError(f"{name}: is a folder; name image files, such as {name.rstrip('/')}/*.png")
    # Decoders raise nearly anything for broken bytes (struct.error, SyntaxError, ...), and warn before they do.
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            io.BytesIO(data) if isinstance(data, bytes) else _Measured(io.FileIO(data)) as file,
            images.open(file, formats=FORMATS) as image,
        ):
            if max(image.size) > MAX_SIDE or image.width * image.height > MAX_PIXELS:
                raise DataError(
                    f"{name}: {image.width}×{image.height} pixels; at most {MAX_SIDE:,} on a side and "
                    f"{MAX_PIXELS // 1_000_000} million in all are read; make it smaller"
                )
            yield image
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except images.DecompressionBombError as error:
        raise DataError(f"{name}: more than {MAX_PIXELS // 1_000_000} million pixels; make it smaller") from error
    except images.UnidentifiedImageError as error:  # its own words are the repr of our file object
        raise DataError(f"{name}: {_describe_unknown(data)}") from error
    except Exception as error:
        what = str(error) or type(error).__name__
        raise DataError(f"{name}: not a whole image ({what[:120]}); replace or remove it") from error


def _describe_unknown(data: bytes | Path) -> str:
    """What a file is that no decoder takes, and what would be right."""
    if isinstance(data, Path):
        with data.open("rb") as file:
            data = file.read(64)
    if not data:
        return "an empty file; replace or remove it"
    if data.startswith(SIGNATURES):
        return "not a whole image (its header is damaged); replace or remove it"
    begins = f"it begins with {data[:8].hex(' ')}"
    if data[4:8] == b"ftyp":  # HEIC, AVIF
        begins = f"it is of the kind {data[8:12].decode('ascii', 'backslashreplace')!r}, as telephones write"
    elif data.lstrip().startswith((b"<", b"%PDF")):
        begins = f"it begins with {data.lstrip()[:8].decode('ascii', 'backslashreplace')!r}"
    return f"not an image that can be read ({begins}); expected {', '.join(FORMATS)}: convert or remove it"


def read_header(data: bytes | Path, name: str) -> PictureHeader:
    """What the file says of its image. Headers of files are remembered while size and time of change stay the same."""
    if isinstance(data, bytes):
        return _header(data, name)
    try:
        state = data.stat()
    except OSError:
        return _header(data, name)  # which says what is wrong
    return _read_cached(data, name, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1 << 17)
def _read_cached(path: Path, name: str, size: int, modified: int) -> PictureHeader:
    return _header(path, name)


def _header(data: bytes | Path, name: str) -> PictureHeader:
    with _open(data, name) as image:
        # Asked for its EXIF, a PNG that has none before its pixels decodes all of them; its orientation is then left
        # to reading, which fits the pixels to whatever size is wanted.
        early = image.format != "PNG" or "exif" in image.info or "Raw profile type exif" in image.info
        orientation = _orientation(image) if early else 1
        # Of a TIFF, some versions of Pillow give the size after turning.
        swapped = orientation >= 5 and getattr(image, "tag_v2", {}).get(WIDTH, image.width) == image.width
        rows, columns = (image.width, image.height) if swapped else (image.height, image.width)
        deep, frames = image.mode.startswith("I"), bool(getattr(image, "is_animated", False))
        return PictureHeader(
            rows, columns, _is_gray(image), orientation > 1, bool(image.has_transparency_data), deep, frames
        )


def _orientation(image: Any) -> int:
    found = image.getexif().get(ORIENTATION, 1)
    return found if isinstance(found, int) and found in range(2, 9) else 1


def _is_gray(image: Any) -> bool:
    if image.mode not in ("P", "PA"):
        return image.mode in GRAY
    palette = np.array(image.getpalette("RGB") or [0, 0, 0]).reshape(-1, 3)
    return bool((palette == palette[:, :1]).all())


def read_picture(data: bytes | Path, name: str, *, gray: bool, size: Size | None = None) -> np.ndarray:
    """The pixels: (1, row, column) if gray is wanted, else (3, row, column); bytes, or floats from 0 to 1 where the
    file has more than 8 bits. With a ``size``, the middle of that proportion, resized."""
    images = need("PIL.Image", "pillow")
    with _open(data, name) as image:
        if size is not None and image.format == "JPEG":
            # Decoded at a half, a quarter or an eighth, but never at less than twice what is wanted.
            image.draft(None, (2 * max(size), 2 * max(size)))
        image.load()
        orientation = _orientation(image)  # after loading: a TIFF turns itself while it loads, and then has none
        picture = _deep(image, name) or _on_white(image)
        if orientation > 1:
            picture = picture.transpose(images.Transpose[UPRIGHT[orientation - 2]])
        if size is not None and (picture.height, picture.width) != size:
            picture = picture.resize(size[::-1], images.Resampling.BILINEAR, box=_middle(picture, size))
        if picture.mode == "F":
            pixels = np.array(picture, dtype=np.float32).clip(0, 1)[None]
            return pixels if gray else pixels.repeat(3, 0)
        pixels = np.array(picture.convert("L" if gray else "RGB"))
    return pixels[None] if gray else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _on_white(image: Any) -> Any:
    """Gray or color of 8 bits; transparency shows the white of a page."""
    mode = "L" if _is_gray(image) else "RGB"
    if not image.has_transparency_data:
        return image if image.mode == mode else image.convert(mode)
    layered = image.convert("RGBA")
    page = need("PIL.Image", "pillow").new("RGBA", image.size, "white")
    page.alpha_composite(layered)
    return page.convert(mode)


def _deep(image: Any, name: str) -> Any | None:
    """An image of 16 bits or floats as floats from 0 to 1; None for all others."""
    if image.mode != "F" and not image.mode.startswith("I"):
        return None
    tags = getattr(image, "tag_v2", {})
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        values = np.array(image)
        low, high = values.min(), values.max()
        if image.mode == "I" or not (low >= 0 and high <= 1):  # NaN is neither
            kind = "floats" if image.mode == "F" else "whole numbers of 32 bits"
            raise DataError(
                f"{name}: {kind} from {low:g} to {high:g}, whose black and white nobody can know; expected 8 or 16 "
                "bits, or floats from 0 to 1"
            )
    else:
        bits = tags.get(BITS, (16,))[0]  # a TIFF may have 12
        values = np.array(image).astype(np.float32) / (2**bits - 1)
        if tags.get(PHOTOMETRIC) == 0:  # white is zero
            values = 1 - values
        if isinstance(clear := image.info.get("transparency"), int):
            values[values == np.float32(clear) / (2**bits - 1)] = 1.0
    return need("PIL.Image", "pillow").fromarray(values.astype(np.float32))


def _middle(image: Any, size: Size) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the largest part in the middle that has the proportion of ``size``."""
    columns, rows = middle_of((image.height, image.width), size)[::-1]
    left, top = (image.width - columns) // 2, (image.height - rows) // 2
    return left, top, left + columns, top + rows


def middle_of(found: Size, wanted: Size) -> Size:
    """Rows and columns of the largest part of an image that has another proportion.

    >>> middle_of((60, 90), (28, 28))
    (60, 60)
    """
    (height, width), (rows, columns) = found, wanted
    return max(1, min(height, round(width * rows / columns))), max(1, min(width, round(height * columns / rows)))
