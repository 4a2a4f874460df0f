"""Photos of digits and letters as MNIST has them: bright strokes on black, cropped, centered by their mass.

The light on the page goes first (a quadratic, then a morphological opening: the page without its strokes), then
contrast is stretched, specks and what touches the border are dropped, and the rest is scaled into 20 of 28 pixels and
moved so that its center of mass is in the middle (LeCun et al. 1998, §III-A).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

WORK = 256  # longer side at which strokes are looked for
MARGIN = 0.4  # around strokes for the second look, as a share of their length
BOX = 20 / 28  # share of the side that strokes take
FAINT = 0.08  # contrast below which nothing is written
STROKE = 0.35  # contrast of strokes, as a share of the strongest
SPECK = 0.05  # components below this share of the largest are dropped

Gray = Float[Tensor, "1 row column"]


def fit_strokes(image: Gray, side: int) -> Float[Tensor, "1 side side"]:
    """A photo of one sign as a square of ``side`` pixels; ``ValueError`` where nothing is written."""
    _, (top, bottom, left, right) = _find_strokes(image)
    # Once more, closer: a digit may be a small part of a photo.
    height, width = image.shape[1:]
    margin = round(MARGIN * max((bottom - top) * height, (right - left) * width)) + 1
    rows = slice(max(0, int(top * height) - margin), int(bottom * height) + margin + 1)
    columns = slice(max(0, int(left * width) - margin), int(right * width) + margin + 1)
    ink, box = _find_strokes(image[:, rows, columns])
    top, bottom, left, right = (round(share * ink.shape[1 + number // 2]) for number, share in enumerate(box))
    cut = ink[:, top:bottom, left:right]
    length = round(side * BOX)
    height, width = (max(1, round(part * length / max(cut.shape[1:]))) for part in cut.shape[1:])
    return _center(_resize(cut, (height, width)), side)


def _find_strokes(image: Gray) -> tuple[Float[Tensor, "1 height width"], tuple[float, float, float, float]]:
    """Strokes alone, 0 to 1, and where they are: top, bottom, left and right as shares of height and width."""
    scale = min(1.0, WORK / max(image.shape[1:]))
    height, width = (max(8, round(length * scale)) for length in image.shape[1:])
    ink = _ink(_resize(image, (height, width)))
    mask = _keep_strokes(ink > STROKE)
    if not bool(mask.any()):
        raise ValueError("nothing stands out from its background")
    ink = torch.where(_grow(mask), ink, ink.new_zeros(()))
    rows, columns = (mask[0].any(axis).nonzero()[:, 0].tolist() for axis in (1, 0))
    return ink, (rows[0] / height, (rows[-1] + 1) / height, columns[0] / width, (columns[-1] + 1) / width)


def _resize(image: Gray, size: tuple[int, int]) -> Float[Tensor, "1 height width"]:
    return F.interpolate(image[None], size, mode="bilinear", antialias=True, align_corners=False)[0].clamp(0, 1)


def _ink(image: Gray) -> Gray:
    """How far each pixel is from the page around it, 0 to 1; strokes are what the border is not."""
    smooth = F.avg_pool2d(image, 3, 1, 1, count_include_pad=False)
    border = torch.cat((smooth[0, 0], smooth[0, -1], smooth[0, :, 0], smooth[0, :, -1]))
    if border.median() > (smooth.min() + smooth.max()) / 2:
        smooth = 1 - smooth  # dark strokes on bright paper
    smooth = smooth - _shade(smooth)
    window = 2 * (min(smooth.shape[1:]) // 4) + 1  # wider than any stroke
    page = _largest(-_largest(-smooth, window), window)
    ink = (smooth - torch.minimum(page, smooth)).clamp(0, 1)
    strongest = ink.flatten().sort().values[-max(1, ink.numel() // 1000) :].mean()
    return ink.new_zeros(ink.shape) if strongest < FAINT else (ink / strongest).clamp(0, 1)


def _shade(image: Gray) -> Gray:
    """How light falls on the page: a quadratic in row and column, fitted to what is not written on."""
    rows, columns = (torch.linspace(-1, 1, length) for length in image.shape[1:])
    row, column = (part.flatten() for part in torch.meshgrid(rows, columns, indexing="ij"))
    basis = torch.stack((torch.ones_like(row), row, column, row * row, row * column, column * column), 1)
    values, page = image.flatten(), torch.ones(image.numel(), dtype=torch.bool)
    fitted = values
    for _ in range(3):
        fitted = basis @ torch.linalg.lstsq(basis[page], values[page, None]).solution[:, 0]
        error = values - fitted
        page = error <= error.std()  # strokes are brighter than the page
    return fitted.reshape(image.shape)


def _largest(image: Gray, window: int) -> Gray:
    """The largest value in a square around each pixel; first along columns, then along rows, which is the same."""
    padded = F.pad(image[None], [window // 2] * 4, mode="replicate")
    return F.max_pool2d(F.max_pool2d(padded, (1, window), 1), (window, 1), 1)[0]


def _keep_strokes(mask: Bool[Tensor, "1 row column"]) -> Bool[Tensor, "1 row column"]:
    """The connected parts of a mask that are no specks and, if any do not, do not touch the border."""
    number = (torch.arange(mask.numel(), dtype=torch.float32) + 1).reshape(mask.shape) * mask
    while True:  # each part takes the largest number in it
        grown = F.max_pool2d(number, 3, 1, 1) * mask
        if torch.equal(grown, number):
            break
        number = grown
    edges = torch.cat((number[0, 0], number[0, -1], number[0, :, 0], number[0, :, -1])).unique()
    inside = mask & ~torch.isin(number, edges[edges > 0])
    kept = inside if inside.sum() >= SPECK * mask.sum() else mask
    parts, sizes = number[kept].unique(return_counts=True)
    if not len(parts):
        return kept
    return kept & torch.isin(number, parts[sizes >= SPECK * sizes.max()])


def _grow(mask: Bool[Tensor, "1 row column"]) -> Bool[Tensor, "1 row column"]:
    """The mask and two pixels around it, where strokes fade out."""
    return F.max_pool2d(mask.float(), 5, 1, 2) > 0


def _center(ink: Gray, side: int) -> Float[Tensor, "1 side side"]:
    """On a black square, the center of mass in the middle as far as there is room."""
    height, width = ink.shape[1:]
    mass = ink[0].sum().clamp_min(1e-9)
    row = float((ink[0].sum(1) * torch.arange(height)).sum() / mass)
    column = float((ink[0].sum(0) * torch.arange(width)).sum() / mass)
    middle = (side - 1) / 2
    top = min(max(0, round(middle - row)), side - height)
    left = min(max(0, round(middle - column)), side - width)
    return F.pad(ink, [left, side - width - left, top, side - height - top])
