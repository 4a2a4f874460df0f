"""Where on the image a capsule of the first grid looks."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.lab.tracing.networks import Network, evaluating

NOISES = 4  # images of noise by which the places are found


class GridOnImage(NamedTuple):
    """The grid of primary capsules as it lies on the image: the center of the first position and the step from one to
    the next, for rows and columns, in pixels."""

    shape: tuple[int, int]
    start: tuple[float, float]
    step: tuple[float, float]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of the grid in pixels, as matplotlib's ``imshow`` wants it."""
        (rows, columns), (top, left), (down, across) = self.shape, self.start, self.step
        return (
            left - across / 2,
            left + (columns - 0.5) * across,
            top + (rows - 0.5) * down,
            top - down / 2,
        )


def grid_on_image(net: Network, images: Float[Tensor, "b channel row column"]) -> GridOnImage:
    """Where each position of the primary capsules looks: the center of the pixels that change its poses, found by
    gradients on images of noise, on a straight line through all positions.

    A grid of 6×6 is rarely an even division of the image: convolutions without padding look at its middle alone.
    """
    height, width = images.shape[-2:]
    with evaluating(net), torch.enable_grad():
        noise = torch.rand(NOISES, *images.shape[1:], generator=torch.Generator().manual_seed(0))
        low, high = images.amin(), images.amax()
        seen = (low + (high - low) * noise.to(images)).requires_grad_(True)
        pose = net.first_capsules(seen).pose
        if pose.ndim != 5:
            raise ValueError("these primary capsules have no grid, so none of them has a place on the image")
        rows, columns = pose.shape[1:3]
        down = _line([_center(pose[:, row, columns // 2], seen, rows=True) for row in range(rows)], height)
        across = _line([_center(pose[:, rows // 2, column], seen, rows=False) for column in range(columns)], width)
    return GridOnImage((rows, columns), (down[0], across[0]), (down[1], across[1]))


def _center(pose: Tensor, images: Tensor, *, rows: bool) -> float | None:
    (gradient,) = torch.autograd.grad(pose.square().sum(), images, retain_graph=True)
    weight = gradient.abs().sum((0, 1)).sum(1 if rows else 0).double()
    total = weight.sum()
    if not bool(total > 0):  # nothing there reacts to the image, as where all is dark and rectified
        return None
    return float((weight * torch.arange(len(weight), device=weight.device)).sum() / total)


def _line(centers: list[float | None], side: int) -> tuple[float, float]:
    """First place and step of the straight line that fits best; evenly spaced where nothing is known."""
    count = len(centers)
    even = side / count
    known = [(number, center) for number, center in enumerate(centers) if center is not None]
    if not known:
        return (even - 1) / 2, even
    mean_number = sum(number for number, _ in known) / len(known)
    mean_center = sum(center for _, center in known) / len(known)
    spread = sum((number - mean_number) ** 2 for number, _ in known)
    if spread == 0.0:
        return mean_center - mean_number * even, even
    step = sum((number - mean_number) * (center - mean_center) for number, center in known) / spread
    step = max(step, even / 4)  # where every position sees the whole image, its place says little
    return mean_center - mean_number * step, step
