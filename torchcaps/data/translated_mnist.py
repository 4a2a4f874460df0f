"""Digits moved about: padded to 40×40 and placed anywhere (Sabour 2017, §5.2), or shifted by up to 2 pixels (§5)."""

from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Batch, Dataset
from torchcaps.data.generated import DIGIT, GeneratedDigits, GeneratorEntry, place, unit


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
