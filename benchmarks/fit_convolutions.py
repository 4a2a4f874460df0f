"""Measure convolutions by PyTorch and by Fourier transforms, and write the costs by which
``torchcaps.convolution.Conv2d`` chooses.

``python -m benchmarks.fit_convolutions`` measures convolutions of many sizes both ways, on one thread and in processor
time. The times go to ``benchmarks/records/convolutions.json``, the costs fitted to them to
``torchcaps/convolution_costs.py``. With ``--write`` it only writes the costs again.
"""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.fit_costs import measure
from torchcaps.convolution import Convolution, convolve_by_fourier
from torchcaps.files import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "convolutions.json"
MODULE = ROOT / "torchcaps" / "convolution_costs.py"
# examples, channels, pixels, window, stride: CapsNet's at its own and at lesser widths, those of residual networks
SIZES = (
    (1, 256, 20, 9, 2), (8, 256, 20, 9, 2), (16, 256, 20, 9, 2), (32, 256, 20, 9, 2), (64, 256, 20, 9, 2),
    (128, 256, 20, 9, 2), (32, 128, 20, 9, 2), (128, 128, 20, 9, 2), (16, 64, 20, 9, 2), (128, 64, 20, 9, 2),
    (128, 16, 20, 9, 2), (32, 64, 28, 9, 2), (64, 128, 16, 5, 2), (64, 128, 16, 5, 1), (64, 64, 16, 3, 1),
    (128, 128, 8, 3, 1),
)  # fmt: skip
HEADER = MODULE.read_text(encoding="utf-8").split("COSTS:")[0]


def make_work(size: tuple[int, ...], *, fourier: bool, training: bool) -> Callable[[], object]:
    """One convolution, forward or forward and backward."""
    torch.manual_seed(0)
    sizes = describe(size)
    features = torch.randn(sizes.examples, sizes.in_channels, *sizes.inputs)
    weight = torch.randn(sizes.out_channels, sizes.in_channels, *sizes.window)
    features = features.contiguous(memory_format=torch.channels_last).requires_grad_(training)
    weight = weight.contiguous(memory_format=torch.channels_last).requires_grad_(training)

    def forward() -> torch.Tensor:
        if fourier:
            return convolve_by_fourier(features, weight, sizes)
        return F.conv2d(features, weight, None, sizes.stride)

    grad = torch.ones_like(forward())
    return (lambda: torch.autograd.grad(forward(), (features, weight), grad)) if training else forward


def describe(size: tuple[int, ...]) -> Convolution:
    examples, channels, pixels, window, stride = size
    return Convolution(examples, channels, channels, (pixels,) * 2, (window,) * 2, (stride,) * 2, (0, 0))


def measure_all() -> dict:
    """The times of all sizes, both ways."""
    torch.set_num_threads(1)
    found = []
    for training in (False, True):
        for size in SIZES:
            times = {
                name: measure(make_work(size, fourier=name == "fourier", training=training), 0.5)
                for name in ("direct", "fourier")
            }
            found.append({"size": size, "training": training, "seconds": times})
            print("training" if training else "inference", size, times, flush=True)
    return {"torch": torch.__version__, "machine": platform.machine(), "sizes": found}


def fit(record: dict) -> dict[str, dict[str, tuple[float, float]]]:
    """For each task and way, the seconds of each of its two features."""
    model: dict[str, dict[str, tuple[float, float]]] = {}
    for task in ("inference", "training"):
        rows = [row for row in record["sizes"] if row["training"] == (task == "training")]
        model[task] = {}
        for place, way in enumerate(("direct", "fourier")):
            seconds = np.array([row["seconds"][way] for row in rows])
            features = np.array([describe(row["size"]).features(training=task == "training")[place] for row in rows])
            model[task][way] = _fit_positive(features / seconds[:, None])
    return model


def _fit_positive(relative: np.ndarray) -> tuple[float, float]:
    """Two costs of zero or more with the least relative errors."""
    both, *_ = np.linalg.lstsq(relative, np.ones(len(relative)), rcond=None)
    if (both >= 0).all():
        return float(both[0]), float(both[1])
    alone = [float(column.sum() / np.square(column).sum()) for column in relative.T]
    errors = [np.square(column * cost - 1.0).sum() for column, cost in zip(relative.T, alone, strict=True)]
    return (alone[0], 0.0) if errors[0] < errors[1] else (0.0, alone[1])


def render(record: dict) -> str:
    """The module that holds the costs."""
    lines = [
        f'    "{task}": {{' + ", ".join(f'"{way}": ({one:.3g}, {two:.3g})' for way, (one, two) in ways.items()) + "},"
        for task, ways in fit(record).items()
    ]
    return HEADER + "\n".join(["COSTS: dict[str, dict[str, tuple[float, float]]] = {", *lines, "}", ""])


def main() -> None:
    if "--write" not in sys.argv[1:]:
        write_json(RECORD, measure_all())
    write_text(MODULE, render(json.loads(RECORD.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
