"""Arrays as scikit-learn knows them, as images: flat rows, ``(n, h, w)`` or ``(n, h, w, c)``; numbers of any range."""

import math
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

ImageShape = tuple[int, int, int]
"""Rows, columns and channels."""
Range = tuple[float, float]
"""What is black and what is white."""


def flatten(X: Any, wanted: ImageShape | None = None) -> tuple[Any, ImageShape | None]:
    """Images as flat rows, and their shape; what is not an array of three or four axes is left to scikit-learn.

    ``wanted`` is the shape that images must have, if that is known already.
    """
    if not hasattr(X, "ndim") and isinstance(X, list | tuple):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(f"X is a list whose parts are not of the same shape: {error}") from error
    if getattr(X, "ndim", 2) < 3:
        return X, None
    if X.ndim > 4 or 0 in X.shape[1:]:
        raise ValueError(f"X of shape {X.shape}; expected images (n, h, w) or (n, h, w, c), or flat rows (n, features)")
    shape = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1)
    if X.ndim == 4 and X.shape[1] in (1, 3) and X.shape[3] > 4:
        raise ValueError(f"X of shape {X.shape} has its channels first; X.transpose(0, 2, 3, 1) puts them last")
    if wanted is not None and shape != wanted:
        raise ValueError(f"X has images of {describe(shape)}; this model was made for {describe(wanted)}")
    return np.asarray(X).reshape(len(X), -1), shape


def choose_shape(given: Any, found: ImageShape | None, features: int) -> ImageShape:
    """The shape of an image of so many numbers: as ``image_shape`` says, as the array had it, or by the number.

    >>> choose_shape(None, None, 784), choose_shape((2, 6), None, 12), choose_shape(None, None, 12)
    ((28, 28, 1), (2, 6, 1), (1, 12, 1))
    """
    if given is not None:
        if not isinstance(given, tuple | list) or len(given) not in (2, 3) or not all(map(_is_size, given)):
            raise ValueError(f"image_shape={given!r}; expected (h, w) or (h, w, c), whole numbers from 1")
        height, width, *channels = map(int, given)
        shape = (height, width, channels[0] if channels else 1)
        if math.prod(shape) != features or (found is not None and found != shape):
            has = f"images of {describe(found)}" if found is not None else f"rows of {features} numbers"
            raise ValueError(f"image_shape={tuple(given)} is {math.prod(shape)} numbers an image; X has {has}")
        return shape
    if found is not None:
        return found
    side = math.isqrt(features)
    return (side, side, 1) if side * side == features else (1, features, 1)


def _is_size(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and int(number) >= 1


def describe(shape: ImageShape) -> str:
    """A shape for a message."""
    height, width, channels = shape
    return f"{height}×{width} pixels" + (f" and {channels} channels" if channels > 1 else "")


def choose_range(given: Any, rows: np.ndarray) -> Range:
    """What is black and what is white: as ``pixel_range`` says, by the type of bytes, or by the numbers themselves."""
    if given is not None:
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            low, high = 0.0, 0.0
        if not low < high or not math.isfinite(high - low):
            raise ValueError(f"pixel_range={given!r}; expected two numbers, black and white, such as (0, 255)")
        return low, high
    if rows.dtype == np.uint8:
        return 0.0, 255.0
    low, high = float(rows.min()), float(rows.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def to_images(rows: np.ndarray, shape: ImageShape, pixels: Range) -> Tensor:
    """Rows as images ``(n, channel, row, column)`` from 0 to 1, or as bytes where they are bytes."""
    height, width, _ = shape
    low, high = pixels
    if rows.dtype != np.uint8 or pixels != (0.0, 255.0):
        with np.errstate(over="ignore"):  # what is too large is refused below
            rows = ((rows - low) / (high - low)).astype(np.float32)
        if not np.isfinite(rows).all():
            raise ValueError(f"X holds numbers too far from the range of the images in fit, {low:g} to {high:g}")
    images = rearrange(rows, "n (row column channel) -> n channel row column", row=height, column=width)
    return torch.from_numpy(np.array(images))  # a copy: the caller's array may be read-only, or change
