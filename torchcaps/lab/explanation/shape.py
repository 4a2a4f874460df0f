"""Measures of a drawn shape: bright strokes on dark ground."""

import torch
from jaxtyping import Float
from torch import Tensor

MEASURES = ("width", "height", "thickness", "slant", "column", "row")
UNITS = ("pixels", "pixels", "pixels", "columns per row up", "pixels", "pixels")


def measure_shapes(images: Float[Tensor, "*b channel row column"]) -> Float[Tensor, "*b measure"]:
    """Width, height, thickness, slant, column and row of the shape in each image, in the order of ``MEASURES``.

    All come from the brightness as it is, without a threshold, so that they move smoothly with the image. Width and
    height are those of an evenly bright box with the same spread; the width is that of the upright shape, with the
    slant taken out. Thickness is twice the area by the length of the outline. Slant is how many columns the shape
    leans to the right for each row up; column and row are the place of its center.

    >>> bar = torch.zeros(1, 20, 20)
    >>> bar[:, 4:16, 8:11] = 1.0
    >>> [round(number, 1) + 0.0 for number in measure_shapes(bar).tolist()]
    [3.0, 12.0, 2.4, 0.0, 9.0, 9.5]
    """
    ink = images.double().mean(-3).clamp_min(0.0)
    rows = torch.arange(ink.shape[-2], dtype=ink.dtype, device=ink.device)
    columns = torch.arange(ink.shape[-1], dtype=ink.dtype, device=ink.device)
    area = ink.sum((-2, -1)).clamp_min(1e-9)
    share = ink / area[..., None, None]
    row = (share.sum(-1) * rows).sum(-1)
    column = (share.sum(-2) * columns).sum(-1)
    down, across = rows - row[..., None], columns - column[..., None]
    row_variance = (share.sum(-1) * down.square()).sum(-1)
    column_variance = (share.sum(-2) * across.square()).sum(-1)
    together = torch.einsum("...yx,...y,...x->...", share, down, across)
    slant = -together / row_variance.clamp_min(1e-9)
    upright = (column_variance - together * together / row_variance.clamp_min(1e-9)).clamp_min(0.0)
    # The variance of an even stretch of n pixels is (n² - 1) / 12.
    width, height = (12.0 * upright + 1.0).sqrt(), (12.0 * row_variance + 1.0).sqrt()
    padded = torch.nn.functional.pad(ink, (1, 1, 1, 1))
    outline = padded.diff(dim=-1).abs().sum((-2, -1)) + padded.diff(dim=-2).abs().sum((-2, -1))
    thickness = 2.0 * area / outline.clamp_min(1e-9)
    return torch.stack((width, height, thickness, slant, column, row), -1).to(images.dtype)
