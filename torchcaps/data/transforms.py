"""Augmentations on batches of tensors, on any device, each with its random numbers from a generator that is named.

What is drawn is small (a few numbers for each example): it comes from ``generator``, on the generator's own device,
and moves to the images' device, so one seed gives one result on a CPU and on a GPU.

Mixup (Zhang et al. 2017) makes each example a weighted mean of itself and another, label and all. Heinsen (2019) draws
the weights from Beta(0.2, 0.2), for images and for embeddings; with embeddings the mask that says which positions hold
tokens is mixed too, so a token mixed with padding is there by a part.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

Images = Float[Tensor, "n channel row column"]
Fill = Literal["zeros", "edge"]


def _uniform(like: Tensor, shape: tuple[int, ...], low: float, high: float, generator: Generator) -> Tensor:
    drawn = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return (low + (high - low) * drawn).to(like.device, like.dtype)


def _check_images(images: Tensor) -> None:
    if images.ndim != 4:
        raise ValueError(f"images are (n, channel, row, column); got shape {tuple(images.shape)}")


def crop(
    images: Shaped[Tensor, "n channel row column"], top: Int[Tensor, "n"], left: Int[Tensor, "n"], size: tuple[int, int]
) -> Shaped[Tensor, "n channel height width"]:
    """From each image the window of ``size`` whose first pixel is at (top, left)."""
    _check_images(images)
    height, width = size
    room = (images.shape[2] - height, images.shape[3] - width)
    if min(room) < 0:
        raise ValueError(
            f"a window of {height}×{width} does not fit into images of {images.shape[2]}×{images.shape[3]}"
        )
    # A view of every possible window, without a copy; only the chosen ones are then read.
    windows = images.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def pad_and_crop(
    images: Images, *, padding: int, generator: Generator, size: tuple[int, int] | None = None, fill: Fill = "zeros"
) -> Float[Tensor, "n channel height width"]:
    """Pad every side, then cut a window (of the original size, unless told) at a random place."""
    _check_images(images)
    if padding < 0:
        raise ValueError(f"padding is a number of pixels from 0 up; got {padding}")
    if fill not in ("zeros", "edge"):
        raise ValueError(f"fill is 'zeros' or 'edge'; got {fill!r}")
    height, width = size or (images.shape[2], images.shape[3])
    padded = F.pad(images, [padding] * 4, mode="constant" if fill == "zeros" else "replicate")
    room = (padded.shape[2] - height, padded.shape[3] - width)
    if min(room) < 0:
        raise ValueError(f"a crop of {height}×{width} is larger than the padded {padded.shape[2]}×{padded.shape[3]}")
    top, left = (
        torch.randint(free + 1, (len(images),), generator=generator, device=generator.device).to(images.device)
        for free in room
    )
    return crop(padded, top, left, (height, width))


def shift(images: Images, *, reach: int, generator: Generator) -> Images:
    """Move each image by up to ``reach`` whole pixels in each direction, zeros coming in (Sabour 2017, §5: 2)."""
    return pad_and_crop(images, padding=reach, generator=generator)


def flip(images: Images, *, generator: Generator, probability: float = 0.5) -> Images:
    """Mirror each image, left to right, with this probability."""
    _check_images(images)
    mirrored = _uniform(images, (len(images), 1, 1, 1), 0.0, 1.0, generator) < probability
    return torch.where(mirrored, images.flip(-1), images)


class AffineRanges(NamedTuple):
    """How far a random affine map may go. The defaults are affNIST's; translation is in pixels."""

    rotation: float = 20.0  # degrees either way, counter-clockwise positive
    shear: float = 0.2  # columns moved for each row up, either way
    scale: tuple[float, float] = (0.8, 1.2)  # for height and width separately
    translation: float = 0.0  # pixels either way, down and right positive


def linear_maps(
    rotation: Float[Tensor, "n"], shear: Float[Tensor, "n"], scale: Float[Tensor, "n 2"]
) -> Float[Tensor, "n 2 2"]:
    """Matrices on (row, column) offsets from the center: first scale, then shear, then rotate (degrees).

    Rows count downwards, so a positive (counter-clockwise) rotation takes what is right of the center upwards:

    >>> rotated = linear_maps(torch.tensor([90.0]), torch.zeros(1), torch.ones(1, 2)) @ torch.tensor([0.0, 1.0])
    >>> rotated.round().add(0.0)
    tensor([[-1.,  0.]])
    """
    angle = torch.deg2rad(rotation)
    cosine, sine = angle.cos(), angle.sin()
    # Written out element by element: a batched matrix product may round differently for another batch size.
    tall, wide = scale[:, 0], scale[:, 1]
    sheared = -shear * tall  # one row up is row offset −1
    first = torch.stack((cosine * tall - sine * sheared, -sine * wide), dim=-1)
    second = torch.stack((sine * tall + cosine * sheared, cosine * wide), dim=-1)
    return torch.stack((first, second), dim=-2)


def warp(
    images: Images,
    maps: Float[Tensor, "n 2 2"],
    translation: Float[Tensor, "n 2"],
    size: tuple[int, int] | None = None,
    fill: Fill = "zeros",
) -> Float[Tensor, "n channel height width"]:
    """Apply to each image its linear map about the center, then its translation (rows, columns), bilinearly.

    The result has ``size`` (the images' own, unless told), with the image's center on the result's center. Around the
    image there is black, or its edge goes on.
    """
    _check_images(images)
    height, width = size or (images.shape[2], images.shape[3])
    rows = torch.arange(height, device=images.device, dtype=images.dtype) - (height - 1) / 2
    columns = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    # Where does each pixel of the result come from? The inverse map, in the images' own pixels.
    a, b, c, d = (maps[:, i, j, None, None] for i in (0, 1) for j in (0, 1))
    determinant = a * d - b * c
    row = rows[:, None] - translation[:, 0, None, None]
    column = columns[None, :] - translation[:, 1, None, None]
    from_row = (d * row - b * column) / determinant
    from_column = (a * column - c * row) / determinant
    grid = torch.stack((from_column * (2 / images.shape[3]), from_row * (2 / images.shape[2])), dim=-1)
    around = "zeros" if fill == "zeros" else "border"
    return F.grid_sample(images, grid.to(images.dtype), mode="bilinear", padding_mode=around, align_corners=False)


def affine(images: Images, *, generator: Generator, ranges: AffineRanges | None = None) -> Images:
    """A random rotation, shear, scale and translation for each image, within ``ranges``."""
    _check_images(images)
    ranges = ranges or AffineRanges()
    low, high = ranges.scale
    if not 0 < low <= high:
        raise ValueError(f"scale goes from a number above 0 to one not smaller; got {ranges.scale}")
    count = len(images)
    rotation = _uniform(images, (count,), -ranges.rotation, ranges.rotation, generator)
    shear = _uniform(images, (count,), -ranges.shear, ranges.shear, generator)
    scale = _uniform(images, (count, 2), low, high, generator)
    translation = _uniform(images, (count, 2), -ranges.translation, ranges.translation, generator)
    return warp(images, linear_maps(rotation, shear, scale), translation)


def normalize(images: Images, *, mean: tuple[float, ...], std: tuple[float, ...]) -> Images:
    """Take away a mean and divide by a standard deviation, one of each for each channel."""
    _check_images(images)
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"images of {channels} channels need as many means and stds; got {len(mean)} and {len(std)}")
    if min(std) <= 0:
        raise ValueError(f"standard deviations are above 0; got {std}")
    return (images - images.new_tensor(mean)[:, None, None]) / images.new_tensor(std)[:, None, None]


def standardize(images: Images) -> Images:
    """Give each image mean 0 and variance 1 of its own; an image of one gray becomes zeros."""
    _check_images(images)
    mean = images.mean((1, 2, 3), keepdim=True)
    deviation = (images - mean).square().mean((1, 2, 3), keepdim=True).sqrt()
    # The floor is the deviation of one bright pixel among all: below it there is nothing but rounding to amplify.
    return (images - mean) / deviation.clamp_min(images[0].numel() ** -0.5)


def jitter(
    images: Images, *, generator: Generator, brightness: float = 32 / 255, contrast: tuple[float, float] = (0.5, 1.5)
) -> Images:
    """Add a random brightness and stretch the contrast about each channel's mean, one draw for each image.

    Hinton 2018 names both without amounts; the defaults are the ones common for this recipe. Values may leave 0 to 1.
    """
    _check_images(images)
    added = _uniform(images, (len(images), 1, 1, 1), -brightness, brightness, generator)
    factor = _uniform(images, (len(images), 1, 1, 1), *contrast, generator)
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * factor + mean + added


class Mixture(NamedTuple):
    """Who is mixed with whom: ``weight`` of the example itself, the rest of ``partner``."""

    partner: Int[Tensor, "n"]
    weight: Float[Tensor, "n"]

    def mix(self, values: Float[Tensor, "n *axes"]) -> Float[Tensor, "n *axes"]:
        """The weighted mean of each row with its partner's."""
        weight = self.weight.to(values.device, values.dtype).reshape(-1, *[1] * (values.ndim - 1))
        return torch.lerp(values[self.partner.to(values.device)], values, weight)


def draw_mixture(count: int, *, generator: Generator, alpha: float = 0.2, per_example: bool = True) -> Mixture:
    """Random partners, and weights from Beta(alpha, alpha): one for each example, or one for the whole batch."""
    if alpha <= 0:
        raise ValueError(f"Beta(alpha, alpha) needs an alpha above 0; got {alpha}")
    partner = torch.randperm(count, generator=generator, device=generator.device)
    # Beta from two Gammas; float64, as a Gamma of so small a shape is often below float32's smallest number.
    shape = torch.full((2, count if per_example else 1), alpha, dtype=torch.float64, device=generator.device)
    gamma = torch._standard_gamma(shape, generator=generator)
    weight = gamma[0] / gamma.sum(0)
    return Mixture(partner, weight.expand(count))


def soft_labels(label: Int[Tensor, "n"] | Float[Tensor, "n label"], num_classes: int) -> Float[Tensor, "n label"]:
    """Class numbers as one-hot rows; rows that are multi-hot or soft already stay as they are."""
    if label.ndim == 2:
        if label.shape[1] != num_classes:
            raise ValueError(f"label rows of {label.shape[1]} numbers do not fit {num_classes} classes")
        return label
    if label.is_floating_point():
        raise ValueError(f"labels are class numbers (integers) or rows of {num_classes} numbers; got {label.dtype}")
    if len(label) and not 0 <= int(label.min()) <= int(label.max()) < num_classes:
        raise ValueError(f"class numbers go from 0 to {num_classes - 1}; got {int(label.min())} to {int(label.max())}")
    return F.one_hot(label.long(), num_classes).to(torch.get_default_dtype())


def mixup(
    image: Float[Tensor, "n *axes"],
    label: Int[Tensor, "n"] | Float[Tensor, "n label"],
    *,
    num_classes: int,
    generator: Generator,
    alpha: float = 0.2,
    per_example: bool = True,
) -> tuple[Float[Tensor, "n *axes"], Float[Tensor, "n label"]]:
    """Mix images and their labels, which become rows of class weights."""
    if len(image) != len(label):
        raise ValueError(f"{len(image)} images do not go with {len(label)} labels")
    mixture = draw_mixture(len(image), generator=generator, alpha=alpha, per_example=per_example)
    return mixture.mix(image), mixture.mix(soft_labels(label, num_classes))


def mixup_embeddings(
    embedding: Float[Tensor, "n position *axes"],
    mask: Float[Tensor, "n position"],
    label: Int[Tensor, "n"] | Float[Tensor, "n label"],
    *,
    num_classes: int,
    generator: Generator,
    alpha: float = 0.2,
    per_example: bool = True,
) -> tuple[Float[Tensor, "n position *axes"], Float[Tensor, "n position"], Float[Tensor, "n label"]]:
    """Mix embeddings, their masks (1 token, 0 padding; in between afterwards) and their labels.

    Padding counts as zeros, whatever the encoder left there, so that it brings nothing into the mixture.
    """
    if embedding.shape[:2] != mask.shape:
        raise ValueError(
            f"a mask for embeddings of shape {tuple(embedding.shape)} is {tuple(embedding.shape[:2])}; "
            f"got {tuple(mask.shape)}"
        )
    if len(embedding) != len(label):
        raise ValueError(f"{len(embedding)} embeddings do not go with {len(label)} labels")
    mask = mask.to(embedding.dtype)
    there = mask.reshape(*mask.shape, *[1] * (embedding.ndim - 2)) > 0
    mixture = draw_mixture(len(embedding), generator=generator, alpha=alpha, per_example=per_example)
    mixed = mixture.mix(torch.where(there, embedding, embedding.new_zeros(())))
    return mixed, mixture.mix(mask), mixture.mix(soft_labels(label, num_classes))
