"""Augmentations of images that are drawn on black, such as digits: rotations of some of them, shifts within margins,
squished widths, erased squares. As in ``transforms``, random numbers come from a generator that is named.

How far each goes is drawn evenly up to the most, or normally with a third of the most as deviation (cut off at the
most), as Efficient-CapsNet (2021) has it.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcaps.data.transforms import Images, linear_maps, warp

Amounts = Literal["uniform", "normal"]
"""How amounts up to the most are distributed."""
DEVIATION, MOST = 0.33, 0.9999


def draw_amounts(shape: tuple[int, ...], amounts: Amounts, generator: Generator) -> Tensor:
    """Random shares between -1 and 1 of the most that a change may be.

    >>> draw_amounts((1000,), "normal", Generator().manual_seed(0)).abs().max() < 1
    tensor(True)
    """
    if amounts not in get_args(Amounts):
        raise ValueError(f"amounts are 'uniform' or 'normal'; got {amounts!r}")
    if amounts == "normal":
        return (DEVIATION * torch.randn(shape, generator=generator, device=generator.device)).clamp(-MOST, MOST)
    return MOST * (2.0 * torch.rand(shape, generator=generator, device=generator.device) - 1.0)


def rotate_some(
    images: Images, *, degrees: float, generator: Generator, share: float = 0.5, amounts: Amounts = "uniform"
) -> Images:
    """Rotate this share of the images about their centers, by up to so many degrees either way."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"the share of images that are rotated is 0 to 1; got {share}")
    count = len(images)
    angle = degrees * draw_amounts((count,), amounts, generator)
    turned = torch.rand(count, generator=generator, device=generator.device) < share
    angle, turned = angle.to(images.device, images.dtype), turned.to(images.device)
    maps = linear_maps(angle, torch.zeros_like(angle), images.new_ones(count, 2))
    rotated = warp(images, maps, images.new_zeros(count, 2))
    return torch.where(turned[:, None, None, None], rotated, images)


def shift_in_margins(images: Images, *, generator: Generator, amounts: Amounts = "uniform") -> Images:
    """Move each image by whole pixels within its black margins: up or down, left or right, and never over the edge."""
    shares = draw_amounts((len(images), 2), amounts, generator).to(images.device)
    drawn = (images != 0).any(1)
    rows = _shifted_places(drawn.any(2), shares[:, 0])
    columns = _shifted_places(drawn.any(1), shares[:, 1])
    example = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[example, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _shifted_places(drawn: Tensor, share: Tensor) -> Tensor:
    """For each place along a side, the place that its pixels come from; ``drawn`` says where anything is."""
    size = drawn.shape[1]
    place = torch.arange(size, device=drawn.device)
    first = torch.where(drawn, place, size).amin(1)
    last = torch.where(drawn, place, -1).amax(1)
    before, after = first, size - 1 - last
    empty = ~drawn.any(1)
    room = torch.where(share < 0, before, after).masked_fill(empty, 0)
    moved = share.sign() * (share.abs() * (1 + room)).floor()
    return (place - moved.long()[:, None]) % size


def squish(images: Images, *, most: float, generator: Generator, amounts: Amounts = "uniform") -> Images:
    """Make each image narrower by one pixel up to this share of its width, about the middle or a pixel beside it."""
    if not 0.0 <= most < 1.0:
        raise ValueError(f"images become narrower by a share of their width from 0 to below 1; got {most}")
    width, count = images.shape[3], len(images)
    share = draw_amounts((count, 2), amounts, generator).abs().to(images.device)
    fewer = (share[:, 0] * (most * width)).floor() + 1.0
    beside = (2.0 * share[:, 1]).floor() + (fewer / 2).floor() - fewer / 2
    scale = torch.stack((torch.ones_like(fewer), (width - fewer) / width), -1).to(images.dtype)
    zero = images.new_zeros(count)
    translation = torch.stack((zero, beside.to(images.dtype)), -1)
    return warp(images, linear_maps(zero, zero, scale), translation)


def erase(images: Images, *, side: int, generator: Generator) -> Float[Tensor, "n channel row column"]:
    """Make a square of so many pixels black in each image, at a random place that is not at the border."""
    height, width = images.shape[2:]
    if side < 1 or min(height, width) < 2 * side + 3:
        raise ValueError(f"a square to erase has a side of 1 to {(min(height, width) - 3) // 2} pixels; got {side}")
    inside = []
    for size in (height, width):
        first = torch.randint(side, size - side - 1, (len(images), 1), generator=generator, device=generator.device)
        place = torch.arange(size, device=generator.device)
        inside.append(((place >= first) & (place < first + side)).to(images.device))
    return images.masked_fill((inside[0][:, :, None] & inside[1][:, None, :]).unsqueeze(1), 0.0)
