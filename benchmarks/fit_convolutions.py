"""Measure convolutions by PyTorch, by Fourier transforms and by Winograd's, and write the costs by which
``torchcaps.convolution.Conv2d`` chooses.

``python -m benchmarks.fit_convolutions`` measures convolutions of many sizes in every way, on one thread and in
processor time. The times go to ``benchmarks/records/convolutions.json``, the costs fitted to them to
``torchcaps/convolution/costs.py``. With ``--write`` it only writes the costs again.
"""

import json
import platform
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.fit_costs import measure
from torchcaps.convolution.layer import MOST_POSITIONS, WAYS
from torchcaps.convolution.sizes import Convolution, Way
from torchcaps.convolution.winograd import is_fit_for_winograd
from torchcaps.files import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "convolutions.json"
MODULE = ROOT / "torchcaps" / "convolution" / "costs.py"
# examples, channels, pixels, window, stride: CapsNet's at its own and at lesser widths, those of residual networks
SIZES = (
    (1, 256, 20, 9, 2), (8, 256, 20, 9, 2), (16, 256, 20, 9, 2), (32, 256, 20, 9, 2), (64, 256, 20, 9, 2),
    (128, 256, 20, 9, 2), (32, 128, 20, 9, 2), (128, 128, 20, 9, 2), (16, 64, 20, 9, 2), (128, 64, 20, 9, 2),
    (128, 16, 20, 9, 2), (32, 64, 28, 9, 2), (64, 128, 16, 5, 2), (64, 128, 16, 5, 1), (64, 64, 16, 3, 1),
    (128, 128, 8, 3, 1), (1, 64, 34, 3, 1), (8, 64, 34, 3, 1), (32, 64, 34, 3, 1), (128, 64, 24, 3, 1),
    (1, 128, 18, 3, 1), (32, 128, 18, 3, 1), (32, 256, 10, 3, 1), (64, 16, 34, 3, 1), (64, 32, 18, 3, 1),
    (16, 32, 66, 3, 1),
)  # fmt: skip
HEADER = MODULE.read_text(encoding="utf-8").split("COSTS:")[0]


def make_work(size: tuple[int, ...], way: Way, *, training: bool) -> Callable[[], object]:
    """One convolution, forward or forward and backward."""
    torch.manual_seed(0)
    sizes = describe(size)
    features = torch.randn(sizes.examples, sizes.in_channels, *sizes.inputs)
    weight = torch.randn(sizes.out_channels, sizes.in_channels, *sizes.window)
    features.requires_grad_(training)
    weight.requires_grad_(training)

    def forward() -> torch.Tensor:
        if way != "direct":
            return WAYS[way](features, weight, sizes)
        return F.conv2d(features, weight, None, sizes.stride)

    grad = torch.ones_like(forward())
    return (lambda: torch.autograd.grad(forward(), (features, weight), grad)) if training else forward


def describe(size: tuple[int, ...]) -> Convolution:
    examples, channels, pixels, window, stride = size
    return Convolution(examples, channels, channels, (pixels,) * 2, (window,) * 2, (stride,) * 2, (0, 0))


def list_ways(size: tuple[int, ...]) -> list[Way]:
    """The ways to make a convolution."""
    sizes = describe(size)
    ways: list[Way] = ["direct"]
    if prod(sizes.positions) <= MOST_POSITIONS:
        ways.append("fourier")
    return [*ways, "winograd"] if is_fit_for_winograd(sizes) else ways


def measure_all() -> dict:
    """The times of all sizes, in every way that is for them."""
    torch.set_num_threads(1)
    found = []
    for training in (False, True):
        for size in SIZES:
            times = {way: measure(make_work(size, way, training=training), 0.5) for way in list_ways(size)}
            found.append({"size": size, "training": training, "seconds": times})
            print("training" if training else "inference", size, times, flush=True)
    return {"torch": torch.__version__, "machine": platform.machine(), "sizes": found}


def fit(record: dict) -> dict[str, dict[str, tuple[float, float]]]:
    """For each task and way, the seconds of each of its two features."""
    model: dict[str, dict[str, tuple[float, float]]] = {}
    for task in ("inference", "training"):
        rows = [row for row in record["sizes"] if row["training"] == (task == "training")]
        model[task] = {}
        for way in get_args(Way):
            timed = [row for row in rows if way in row["seconds"]]
            seconds = np.array([row["seconds"][way] for row in timed])
            counts = [describe(row["size"]).count_work(way, training=task == "training") for row in timed]
            model[task][way] = _fit_positive(np.array(counts) / seconds[:, None])
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
