"""Transformed digits: translated on 40×40 (Sabour 2017, §5.2), shifted by up to 2 pixels (§5), or under affine maps.

``affine_mnist`` has affNIST's ranges, for when the published affNIST is not at hand: rotation within ±20°, shear within
±0.2, height and width scaled by 0.8 to 1.2 each, and the digit anywhere on 40×40 where all of it is inside. Its images
are **generated here** and are not affNIST's own: a number measured on them must say so, as ``name`` does.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torchcaps.data.base import Batch, Dataset
from torchcaps.data.generated import DIGIT, GeneratedDigits, GeneratorEntry, place, unit
from torchcaps.data.transforms import AffineRanges, linear_maps, warp


class _MovedDigits(GeneratedDigits):
    """Each source image in a black square, moved by whole pixels. Metadata: ``shift`` (rows, columns), ``source``."""

    redrawn = True

    def __init__(self, name: str, source: Dataset, seed: int, copies: int, size: int, reach: int) -> None:
        super().__init__(name, source, len(source) * copies, seed)
        self.size, self.reach = size, reach

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        indices = self._check(indices)
        source = indices % len(self.labels)
        shift = self._shifts(indices, self.reach, stream=0)
        image = unit(place(self.pixels[source], shift, self.reach, self.size))[:, None]
        return Batch(image, self.labels[source], {"shift": shift, "source": source})


class TranslatedMNIST(_MovedDigits):
    """The whole 28×28 image somewhere on black 40×40: up to 6 pixels from the middle, every place equally likely.

    ``copies`` examples are made of each source image, in as many places.
    """

    def __init__(self, source: Dataset, *, seed: int = 0, copies: int = 1, size: int = 40) -> None:
        if size < DIGIT or size % 2:
            raise ValueError(f"images of {DIGIT} pixels centered on {size}: the size is even and at least {DIGIT}")
        super().__init__("translated_mnist", source, seed, copies, size, reach=(size - DIGIT) // 2)


class ShiftedMNIST(_MovedDigits):
    """28×28 images shifted by up to ``reach`` pixels in each direction, black coming in; ``copies`` of each."""

    def __init__(self, source: Dataset, *, seed: int = 0, copies: int = 1, reach: int = 2) -> None:
        if not 0 <= reach <= DIGIT:
            raise ValueError(f"a shift within {DIGIT} pixels has a reach of 0 to {DIGIT}; got {reach}")
        super().__init__("shifted_mnist", source, seed, copies, DIGIT, reach)


_ONCE = {"train": 1, "test": 1}
TRANSLATED_MNIST = GeneratorEntry("translated_mnist", "digits anywhere on 40×40", TranslatedMNIST, _ONCE)
SHIFTED_MNIST = GeneratorEntry("shifted_mnist", "digits shifted by up to 2 pixels, 28×28", ShiftedMNIST, _ONCE)


SIZE = 40
_ROTATION, _SHEAR, _TALL, _WIDE, _DOWN, _RIGHT = range(6)


class AffineMNIST(GeneratedDigits):
    """Each source image, transformed; ``copies`` examples of each (affNIST has 32).

    Metadata: ``rotation`` (degrees, counter-clockwise), ``shear``, ``scale`` (height, width), ``translation`` (rows,
    columns, in pixels from the middle) and ``source``, the image's number in the source.
    """

    redrawn = True

    def __init__(
        self, source: Dataset, *, seed: int = 0, copies: int = 1, ranges: AffineRanges | None = None, size: int = SIZE
    ) -> None:
        super().__init__("affine_mnist", source, len(source) * copies, seed)
        self.ranges, self.size = ranges or AffineRanges(), size

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        indices = self._check(indices)
        source = indices % len(self.labels)
        pixels = self.pixels[source]
        low, high = self.ranges.scale
        rotation = self.draws.uniform(indices, _ROTATION, -self.ranges.rotation, self.ranges.rotation)
        shear = self.draws.uniform(indices, _SHEAR, -self.ranges.shear, self.ranges.shear)
        scale = torch.stack([self.draws.uniform(indices, axis, low, high) for axis in (_TALL, _WIDE)], dim=-1)
        maps = linear_maps(rotation, shear, scale)
        translation = self._translations(indices, pixels > 0, maps)
        warped = warp(
            unit(pixels)[:, None], maps.to(torch.float32), translation.to(torch.float32), (self.size, self.size)
        )
        # Whole gray levels, as in the published files; they also absorb the last bit of the interpolation.
        image = (warped * 255.0).round() / 255.0
        metadata = {"rotation": rotation, "shear": shear, "scale": scale, "translation": translation}
        metadata = {key: value.to(torch.float32) for key, value in metadata.items()}
        return Batch(image, self.labels[source], {**metadata, "source": source})

    def _translations(
        self, indices: Int[Tensor, "n"], ink: Bool[Tensor, "n row column"], maps: Float[Tensor, "n 2 2"]
    ) -> Float[Tensor, "n 2"]:
        """Moves that keep all the ink inside, evenly drawn; ink too large for the frame is centered, and cut."""
        offset = torch.arange(DIGIT, device=ink.device, dtype=torch.float32) - (DIGIT - 1) / 2
        moves = []
        for axis, stream in ((0, _DOWN), (1, _RIGHT)):
            row, column = (maps[:, axis, k, None, None].to(torch.float32) for k in (0, 1))
            at = row * offset[:, None] + column * offset[None, :]
            # A pixel is a square: interpolation spreads its ink by up to the map's reach on either side.
            spread = row.abs() + column.abs()
            least = torch.where(ink, at - spread, torch.inf).amin((1, 2)).clamp_max(0.0).to(torch.float64)
            most = torch.where(ink, at + spread, -torch.inf).amax((1, 2)).clamp_min(0.0).to(torch.float64)
            edge = (self.size - 1) / 2
            slack = (2 * edge - (most - least)).clamp_min(0.0)
            middle = -(least + most) / 2
            moves.append(middle + slack * (self.draws.uniform(indices, stream) - 0.5))
        return torch.stack(moves, dim=-1)


AFFINE_MNIST = GeneratorEntry(
    "affine_mnist", "digits under affNIST's affine maps, 40×40", AffineMNIST, {"train": 1, "test": 1}
)
