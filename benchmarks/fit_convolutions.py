"""Measure convolutions by PyTorch and in each way of our own, and write the costs by which
``torchcaps.convolution.Conv2d`` chooses.

``python -m benchmarks.fit_convolutions`` measures convolutions of many sizes in every way, on one thread and in
processor time. The times go to ``benchmarks/records/convolutions.json``, the costs fitted to them to
``torchcaps/convolution/costs.py``, and what networks gain to ``docs/fast.md``. With ``--write`` it only writes these
again, with ``--first`` it only measures training of first layers, whose images want no gradient, with ``--missing``
only sizes that the record lacks or lacks a way for.
"""

import json
import platform
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.fit_costs import measure
from torchcaps.convolution.costs import COSTS
from torchcaps.convolution.layer import WAYS, list_native_ways
from torchcaps.convolution.sizes import Convolution, Gradients, Way
from torchcaps.files import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "convolutions.json"
MODULE = ROOT / "torchcaps" / "convolution" / "costs.py"
PAGE = ROOT / "docs" / "fast.md"
# examples, channels in and out, pixels, window, stride: CapsNet's at its own and at lesser widths, those of residual
# networks; first layers, and strides on large images; large windows on large images
SIZES = (
    (1, 256, 256, 20, 9, 2), (8, 256, 256, 20, 9, 2), (16, 256, 256, 20, 9, 2), (32, 256, 256, 20, 9, 2),
    (64, 256, 256, 20, 9, 2), (128, 256, 256, 20, 9, 2), (32, 128, 128, 20, 9, 2), (128, 128, 128, 20, 9, 2),
    (16, 64, 64, 20, 9, 2), (128, 64, 64, 20, 9, 2), (128, 16, 16, 20, 9, 2), (32, 64, 64, 28, 9, 2),
    (64, 128, 128, 16, 5, 2), (64, 128, 128, 16, 5, 1), (64, 64, 64, 16, 3, 1), (128, 128, 128, 8, 3, 1),
    (1, 64, 64, 34, 3, 1), (8, 64, 64, 34, 3, 1), (32, 64, 64, 34, 3, 1), (128, 64, 64, 24, 3, 1),
    (1, 128, 128, 18, 3, 1), (32, 128, 128, 18, 3, 1), (32, 256, 256, 10, 3, 1), (64, 16, 16, 34, 3, 1),
    (64, 32, 32, 18, 3, 1), (16, 32, 32, 66, 3, 1), (1, 1, 256, 28, 9, 1), (64, 1, 256, 28, 9, 1),
    (128, 1, 256, 28, 9, 1), (1, 3, 64, 34, 3, 1), (32, 3, 64, 34, 3, 1), (32, 3, 128, 34, 3, 1),
    (16, 1, 32, 28, 5, 1), (64, 1, 32, 28, 5, 1), (64, 2, 32, 32, 5, 2), (1, 4, 64, 96, 3, 1), (20, 4, 64, 96, 3, 1),
    (1, 64, 64, 94, 3, 2), (8, 64, 64, 94, 3, 2), (20, 64, 64, 94, 3, 2), (20, 64, 64, 46, 3, 1),
    (20, 64, 64, 44, 3, 2), (64, 64, 64, 34, 3, 2), (32, 64, 128, 34, 3, 2), (32, 128, 256, 18, 3, 2),
    (16, 16, 32, 66, 3, 2), (64, 64, 128, 20, 3, 2), (8, 64, 64, 40, 9, 1), (4, 64, 64, 64, 9, 1),
    (2, 64, 64, 96, 9, 1), (4, 16, 16, 96, 9, 1), (4, 3, 64, 64, 9, 1), (4, 64, 64, 96, 9, 2), (8, 128, 128, 64, 5, 2),
    (8, 64, 64, 48, 5, 1), (8, 128, 128, 40, 5, 1), (2, 64, 64, 96, 5, 1), (8, 64, 64, 48, 3, 1), (8, 64, 64, 64, 9, 2),
    (8, 128, 128, 64, 7, 2), (4, 128, 128, 72, 5, 2), (4, 32, 32, 128, 7, 1),
)  # fmt: skip
# of these, images are what comes in
FIRST = (
    *(size for size in SIZES if size[1] <= 4),
    (128, 1, 64, 28, 9, 1), (128, 3, 64, 32, 9, 1), (16, 3, 16, 34, 3, 1), (8, 3, 64, 66, 5, 2), (64, 2, 64, 32, 5, 2),
)  # fmt: skip
# of networks, what docs/fast.md has a share of PyTorch's time of: the task, and the sizes
NETWORKS = {
    "CapsNet's primary capsules": ("training", ((64, 256, 256, 20, 9, 2), (128, 256, 256, 20, 9, 2))),
    "CapsNet's primary capsules, one image": ("inference", ((1, 256, 256, 20, 9, 2),)),
    "a residual network's, of 64 or 128 channels": ("training", ((32, 64, 64, 34, 3, 1), (32, 128, 128, 18, 3, 1))),
    "Heinsen's second": ("training", ((20, 64, 64, 94, 3, 2),)),
    "Heinsen's first": ("first layer", ((20, 4, 64, 96, 3, 1),)),
    "CapsNet's first": ("first layer", ((64, 1, 256, 28, 9, 1), (128, 1, 256, 28, 9, 1))),
    "windows of 9×9 on images of 40×40 to 96×96": (
        "training", ((8, 64, 64, 40, 9, 1), (4, 64, 64, 64, 9, 1), (2, 64, 64, 96, 9, 1)),
    ),
}  # fmt: skip
NAMES: dict[Way, str] = {
    "direct": "PyTorch's", "implicit": "implicit product", "fourier": "Fourier", "winograd": "Winograd",
}  # fmt: skip
BEGIN, END = "<!-- convolutions: written from the record -->\n", "<!-- end of convolutions -->\n"
TASKS: dict[str, Gradients] = {"inference": (False, False), "training": (True, True), "first layer": (False, True)}
HEADER = MODULE.read_text(encoding="utf-8").split("COSTS:")[0]


def make_work(size: tuple[int, ...], way: Way, gradients: Gradients) -> Callable[[], object]:
    """One convolution, forward or forward and backward."""
    torch.manual_seed(0)
    sizes = describe(size)
    features = torch.randn(sizes.examples, sizes.in_channels, *sizes.inputs)
    weight = torch.randn(sizes.out_channels, sizes.in_channels, *sizes.window)
    leaves = [leaf for leaf, wanted in zip((features, weight), gradients, strict=True) if wanted]
    for leaf in leaves:
        leaf.requires_grad_()

    def forward() -> torch.Tensor:
        if way != "direct":
            return WAYS[way](features, weight, None, sizes)
        return F.conv2d(features, weight, None, sizes.stride)

    grad = torch.ones_like(forward())
    return (lambda: torch.autograd.grad(forward(), leaves, grad)) if leaves else forward


def describe(size: tuple[int, ...]) -> Convolution:
    examples, below, above, pixels, window, stride = size
    return Convolution(examples, below, above, (pixels,) * 2, (window,) * 2, (stride,) * 2, (0, 0))


def measure_all() -> dict:
    """The times of all sizes, in every way that is for them."""
    found = [row for task in TASKS for row in measure_task(task)]
    return {"torch": torch.__version__, "machine": platform.machine(), "sizes": found}


def measure_task(task: str) -> list[dict]:
    """The times of one task's sizes."""
    return [measure_size(size, task) for size in list_sizes(task)]


def list_sizes(task: str) -> tuple[tuple[int, ...], ...]:
    """What is measured of a task."""
    return FIRST if task == "first layer" else SIZES


def measure_size(size: tuple[int, ...], task: str, known: dict[Way, float] | None = None) -> dict:
    """The times of one size, in every way that is for it; those that are known stay."""
    torch.set_num_threads(1)
    times = dict(known or {})
    for way in list_ways(size):
        if way not in times:
            times[way] = measure(make_work(size, way, TASKS[task]), 0.5)
            print(task, size, way, times[way], flush=True)
    return {"size": list(size), "task": task, "seconds": times}


def list_ways(size: tuple[int, ...]) -> list[Way]:
    return ["direct", *list_native_ways(describe(size))]


def measure_missing(record: dict) -> list[dict]:
    """The times of all sizes: those of the record, and new ones where it has none or not of every way."""
    known = {(tuple(row["size"]), row["task"]): row["seconds"] for row in record["sizes"]}
    return [measure_size(size, task, known.get((size, task))) for task in TASKS for size in list_sizes(task)]


def fit(record: dict) -> dict[str, dict[str, tuple[float, ...]]]:
    """For each task and way, the seconds of each kind of its work."""
    model: dict[str, dict[str, tuple[float, ...]]] = {}
    for task, gradients in TASKS.items():
        rows = [row for row in record["sizes"] if row["task"] == task]
        model[task] = {}
        for way in get_args(Way):
            timed = [row for row in rows if way in row["seconds"]]
            seconds = np.array([row["seconds"][way] for row in timed])
            counts = [describe(row["size"]).count_work(way, gradients) for row in timed]
            model[task][way] = _fit_positive(np.array(counts) / seconds[:, None])
    return model


def _fit_positive(relative: np.ndarray) -> tuple[float, ...]:
    """Costs of zero or more with the least relative errors: the best of all choices of those that are more."""
    kinds, best, found = relative.shape[1], np.inf, np.zeros(relative.shape[1])
    for many in range(1, kinds + 1):
        for chosen in map(list, combinations(range(kinds), many)):
            costs, *_ = np.linalg.lstsq(relative[:, chosen], np.ones(len(relative)), rcond=None)
            error = np.square(relative[:, chosen] @ costs - 1.0).sum()
            if (costs >= 0).all() and error < best:
                best, found = error, np.zeros(kinds)
                found[chosen] = costs
    return tuple(map(float, found))


def render(record: dict) -> str:
    """The module that holds the costs."""
    lines = []
    for task, ways in fit(record).items():
        costs = (f"{way!r}: ({', '.join(f'{cost:.3g}' for cost in found)})" for way, found in ways.items())
        lines += [f'    "{task}": {{', *(f"        {line},".replace("'", '"') for line in costs), "    },"]
    return HEADER + "\n".join(["COSTS: dict[str, dict[str, tuple[float, ...]]] = {", *lines, "}", ""])


def render_shares(record: dict) -> str:
    """The table of the page: the ways that are taken, and their shares of PyTorch's time."""
    rows = {(tuple(row["size"]), row["task"]): row["seconds"] for row in record["sizes"]}
    lines = ["", "| convolution | examples | task | way | share of PyTorch's time |", "|---|---|---|---|---:|"]
    for name, (task, sizes) in NETWORKS.items():
        ways: list[Way] = [describe(size).find_cheapest(list_ways(size), gradients=TASKS[task]) for size in sizes]
        times = [rows[size, task] for size in sizes]
        shares = sorted(round(100 * each[way] / each["direct"]) for each, way in zip(times, ways, strict=True))
        share = f"{shares[0]} %" if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]} %"
        counts = sorted({size[0] for size in sizes})
        examples = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else counts[0]
        taken = " or ".join(name for way, name in NAMES.items() if way in ways)
        lines.append(f"| {name} | {examples} | {task} | {taken} | {share} |")
    return "\n".join(lines) + "\n\n"


def put_between(page: str, begin: str, end: str, text: str) -> str:
    """The page with a text between two marks."""
    before, _, after = page.partition(begin)
    return before + begin + text + end + after.partition(end)[2]


def main() -> None:
    if "--first" in sys.argv[1:]:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        kept = [row for row in record["sizes"] if row["task"] != "first layer"]
        write_json(RECORD, record | {"sizes": [*kept, *measure_task("first layer")]})
    elif "--missing" in sys.argv[1:]:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        write_json(RECORD, record | {"sizes": measure_missing(record)})
    elif "--write" not in sys.argv[1:]:
        write_json(RECORD, measure_all())
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    write_text(MODULE, render(record))
    COSTS.update(fit(record))  # the page has what is chosen by these
    write_text(PAGE, put_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, render_shares(record)))


if __name__ == "__main__":
    main()
