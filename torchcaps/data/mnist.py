"""MNIST and Fashion-MNIST: 60,000 + 10,000 gray images of 28×28 in IDX files, gzip or plain.

LeCun, Cortes, Burges, "The MNIST database of handwritten digits"; Xiao, Rasul, Vollgraf, "Fashion-MNIST" (2017).
"""

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, verify_published
from torchcaps.data.files import expect_end, first_of, missing, opened, read_exactly

DIGITS = tuple("0123456789")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
PREFIX = {"train": "train", "test": "t10k"}
LIMIT = 256 << 20  # far above the 47 MB of the training images

# File name: bytes and SHA-256 of the .gz, SHA-256 of what is in it.
_MNIST = {
    "train-images-idx3-ubyte": (
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": (
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte": (
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte": (
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
_FASHION = {
    "train-images-idx3-ubyte": (
        26_421_880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "train-labels-idx1-ubyte": (
        29_515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "t10k-images-idx3-ubyte": (
        4_422_102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "t10k-labels-idx1-ubyte": (
        5_148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}


def read_idx(path: Path, axes: int) -> Tensor:
    """The bytes of an IDX file with this many axes: gzip or plain, its size held to its header."""
    with opened(path, LIMIT) as stream:
        header = bytes(read_exactly(stream, 4 + 4 * axes, path, "IDX header"))
        # Two zero bytes, 8 for unsigned bytes, and the number of axes.
        if header[:4] != bytes((0, 0, 8, axes)):
            raise DataError(
                f"{path}: starts with {header[:4].hex()}, not {bytes((0, 0, 8, axes)).hex()} as IDX bytes of {axes} "
                "axes do; it is another file, or a broken one"
            )
        shape = struct.unpack(f">{axes}I", header[4:])
        size = math.prod(shape)
        if not 0 < size <= LIMIT:
            raise DataError(f"{path}: its header claims {'×'.join(map(str, shape))} bytes; at most {LIMIT:,} are read")
        data = read_exactly(stream, size, path, f"{'×'.join(map(str, shape))} values")
        expect_end(stream, path, "IDX values")
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).reshape(shape))


def read_pair(images: Path, labels: Path, name: str, split: str, classes: tuple[str, ...]) -> ArrayDataset:
    """A dataset from a file of images and a file of labels, whatever their number and size."""
    label = read_idx(labels, 1).long()
    if int(label.max()) >= len(classes):
        raise DataError(f"{labels}: holds label {int(label.max())}; {name} has the classes 0 to {len(classes) - 1}")
    image = read_idx(images, 3)[:, None]
    if len(image) != len(label):
        raise DataError(f"{images}: {len(image)} images but {len(label)} labels in {labels.name}; fetch both again")
    return ArrayDataset(name, split, classes, image, label)


def _entry(
    name: str, about: str, terms: str, classes: tuple[str, ...], folders: tuple[str, ...], sites, table
) -> DatasetEntry:
    sums = {f"{file}.gz": packed for file, (_, packed, _) in table.items()}
    sums |= {file: plain for file, (_, _, plain) in table.items()}

    def locate(split: str, root: Path) -> tuple[Path, ...]:
        found = []
        for kind in ("images-idx3", "labels-idx1"):
            file = f"{PREFIX[split]}-{kind}-ubyte"
            path = first_of(tuple(root / folder for folder in folders), (f"{file}.gz", file))
            if path is None:
                raise missing(name, split, f"{file}.gz or {file}", root / folders[0])
            found.append(path)
        return tuple(found)

    def load(split: str, root: Path) -> ArrayDataset:
        images, labels = locate(split, root)
        for path in (images, labels):
            verify_published(path, path.parent, sums, name)
        return read_pair(images, labels, name, split, classes)

    files = tuple(
        RemoteFile(f"{file}.gz", tuple(f"{site}{file}.gz" for site in sites), size, packed)
        for file, (size, packed, _) in table.items()
    )
    return DatasetEntry(
        about, load, {"train": 60_000, "test": 10_000}, terms, DownloadSource(folders[0], files, locate, sums)
    )


# The second folder is where torchvision keeps the same files.
MNIST = _entry(
    "mnist",
    "handwritten digits, 28×28 gray",
    "CC BY-SA 3.0, as commonly stated (LeCun, Cortes)",
    DIGITS,
    ("mnist", "MNIST/raw"),
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    _MNIST,
)
FASHION_MNIST = _entry(
    "fashion_mnist",
    "photographs of clothes, 28×28 gray",
    "MIT, Zalando SE",
    CLOTHES,
    ("fashion_mnist", "FashionMNIST/raw"),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    _FASHION,
)
