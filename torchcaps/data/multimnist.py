"""MultiMNIST (Sabour, Frosst and Hinton 2017, §6.1): two digits of different classes on top of each other.

Each digit moves by up to 4 pixels in each direction on 36×36, the brightnesses add up and are clipped at 1. Both moved
digits come along by themselves: the decoder is asked to draw them one at a time. The paper makes 1,000 examples for
each source digit: 60 million for training, 10 million for test; here they are made when they are asked for.
"""

import torch
from einops import rearrange
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Batch, DataError, Dataset
from torchcaps.data.generated import GeneratedDigits, GeneratorEntry, place, unit

SIZE, REACH = 36, 4
# Streams of random numbers; shifts take two each, for rows and columns.
_PARTNER, _SHIFT_FIRST, _SHIFT_SECOND = 0, 1, 3


class MultiMNIST(GeneratedDigits):
    """Pairs of overlapping digits. The label is multi-hot.

    Metadata, for the two digits of each example in order: ``parts`` (n, 2, 36, 36) the moved digits, 0 to 1; ``digits``
    their classes; ``sources`` their numbers in the source; ``shifts`` (n, 2, 2) their moves in rows and columns.
    """

    def __init__(self, source: Dataset, *, seed: int = 0, per_digit: int = 1000, name: str = "multimnist") -> None:
        super().__init__(name, source, len(source) * per_digit, seed)
        # Sorted by class, the images of other classes are all but one stretch, and a draw can step over that.
        self.order = self.labels.argsort(stable=True)
        self.count = torch.bincount(self.labels, minlength=len(self.classes))
        self.start = self.count.cumsum(0) - self.count
        if int((self.count > 0).sum()) < 2:
            raise DataError(
                f"{self.name} overlays digits of different classes; {source.name}/{source.split} has only one class"
            )

    def _partners(self, indices: Int[Tensor, "n"], first: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """For each first digit another of a different class, every such one equally likely."""
        label = self.labels[first]
        drawn = self.draws.below(indices, _PARTNER, len(self.labels) - self.count[label])
        return self.order[torch.where(drawn < self.start[label], drawn, drawn + self.count[label])]

    def _pair(self, indices: Int[Tensor, "n"]) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of the two digits in the source, their shifts, and the moved digits (bytes)."""
        first = indices % len(self.labels)
        sources = torch.stack((first, self._partners(indices, first)), dim=1)
        shifts = torch.stack([self._shifts(indices, REACH, stream) for stream in (_SHIFT_FIRST, _SHIFT_SECOND)], dim=1)
        flat = place(
            self.pixels[rearrange(sources, "n k -> (n k)")], rearrange(shifts, "n k a -> (n k) a"), REACH, SIZE
        )
        return sources, shifts, rearrange(flat, "(n k) row column -> n k row column", k=2)

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        sources, shifts, parts = self._pair(self._check(indices))
        digits = self.labels[sources]
        parts = unit(parts)
        image = (parts[:, :1] + parts[:, 1:]).clamp_max(1.0)
        label = parts.new_zeros(len(indices), len(self.classes)).scatter_(1, digits, 1.0)
        return Batch(image, label, {"parts": parts, "digits": digits, "sources": sources, "shifts": shifts})


MULTIMNIST = GeneratorEntry(
    "multimnist", "two overlapping digits of different classes, 36×36", MultiMNIST, {"train": 1000, "test": 1000}
)
