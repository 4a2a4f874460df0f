"""Two overlapping digits: MultiMNIST (Sabour, Frosst and Hinton 2017, §6.1) and DiverseMultiMNIST (Tsai et al. 2020).

Each digit moves by up to 4 pixels in each direction on 36×36; brightnesses add up and are clipped at 1. Both moved
digits come along separately, since a decoder reconstructs them one at a time. The first paper makes 1,000 examples for
each source digit: 60 million for training, 10 million for test. Here they are made on request.

In DiverseMultiMNIST (appendix B.2) a sixth of the images have one digit. The paper trains on 21 million images (350
times 60,000) and evaluates on 10,000: so many passes over the source are the defaults.
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


SINGLE = 1 / 6
PASSES = {"train": 350, "test": 1}
_ALONE = 5  # the stream of random numbers after MultiMNIST's


class DiverseMultiMNIST(MultiMNIST):
    """One or two digits. The label is multi-hot, with one or two ones.

    Metadata is MultiMNIST's and ``count`` (1 or 2). Where a digit is alone the second part is black, and its class
    and source number are −1.
    """

    def __init__(
        self, source: Dataset, *, seed: int = 0, passes: int | None = None, single_probability: float = SINGLE
    ) -> None:
        if not 0.0 <= single_probability <= 1.0:
            raise ValueError(f"a probability goes from 0 to 1; got single_probability={single_probability}")
        passes = PASSES.get(source.split, 1) if passes is None else passes
        super().__init__(source, seed=seed, per_digit=passes, name="diverse_multimnist")
        self.single_probability = single_probability

    def batch(self, indices: Int[Tensor, "n"]) -> Batch:
        pair = super().batch(indices)
        alone = self.draws.uniform(self._check(indices), _ALONE) < self.single_probability
        known = dict(pair.metadata)
        parts, digits, sources, shifts = (known[key].clone() for key in ("parts", "digits", "sources", "shifts"))
        label = pair.label.clone()
        label[alone, digits[alone, 1]] = 0.0
        image = torch.where(alone[:, None, None, None], parts[:, :1], pair.image)
        parts[alone, 1], digits[alone, 1], sources[alone, 1], shifts[alone, 1] = 0.0, -1, -1, 0
        metadata = {"parts": parts, "digits": digits, "sources": sources, "shifts": shifts, "count": 2 - alone.long()}
        return Batch(image, label, metadata)


DIVERSE_MULTIMNIST = GeneratorEntry(
    "diverse_multimnist", "one digit (1 of 6) or two overlapping ones, 36×36", DiverseMultiMNIST, PASSES
)
