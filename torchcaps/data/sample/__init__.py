"""The sample of MNIST that ships with the package: the default of everything, without network or set-up."""

from pathlib import Path

import torch

from torchcaps.data.arrays import read_npz
from torchcaps.data.base import ArrayDataset
from torchcaps.data.catalog import DatasetEntry
from torchcaps.data.files import verify

FILE = Path(__file__).with_name("mnist_sample.npz")
SHA256 = "f855ac40bd55bdf1fb5ba38bcfd71e7ce14f9e46d00e9bd5a62e2bd734c2b5d3"
DIGITS = tuple("0123456789")


def load(split: str, root: Path) -> ArrayDataset:
    """The sample of a split; ``index`` in the metadata is the image's number in the official file."""
    verify(FILE, SHA256, "install torchcaps again")
    arrays = {name: torch.from_numpy(values) for name, values in read_npz(FILE, f"{split}_").items()}
    images, labels = arrays[f"{split}_images"][:, None], arrays[f"{split}_labels"].long()
    return ArrayDataset("mnist_sample", split, DIGITS, images, labels, {"index": arrays[f"{split}_index"].long()})


MNIST_SAMPLE = DatasetEntry(
    "a sample of MNIST that ships with the package, 28×28 gray",
    load,
    {"train": 5_000, "test": 1_000},
    "CC BY-SA 3.0, as commonly stated (LeCun, Cortes, Burges)",
)
