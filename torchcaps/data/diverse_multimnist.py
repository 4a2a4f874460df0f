"""DiverseMultiMNIST (Tsai et al. 2020, appendix B.2): one digit in a sixth of the images, two overlapping in the rest.

Digits move and overlap as in MultiMNIST. The paper trains on 21 million images (350 times 60,000) and evaluates on
10,000: so many passes over the source are the defaults for a training split and for any other.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.base import Batch, Dataset
from torchcaps.data.generated import GeneratorEntry
from torchcaps.data.multimnist import MultiMNIST

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
