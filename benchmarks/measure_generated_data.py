"""Measure how fast generated data is made, and put the figures into docs/generated-data.md.

``python benchmarks/measure_generated_data.py`` writes benchmarks/records/generated-data.json and the table made from
it. Digits are measured on one thread, in batches of 256; both splits of the toys are rendered into a temporary
directory.
"""

import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from torchcaps.data.base import ArrayDataset, Dataset
from torchcaps.data.multimnist import DiverseMultiMNIST, MultiMNIST
from torchcaps.data.toys import load_toys
from torchcaps.data.transformed_mnist import AffineMNIST, ShiftedMNIST, TranslatedMNIST

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "records" / "generated-data.json"
PAGE = ROOT / "docs" / "generated-data.md"
BEGIN, END = "<!-- speed: begin -->\n", "<!-- speed: end -->\n"
BATCH = 256


def source() -> ArrayDataset:
    """As many random pictures as MNIST has; the generators' speed does not depend on what is in them."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (60_000, 1, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (60_000,), generator=generator)
    return ArrayDataset("random", "train", tuple("0123456789"), images, labels)


def images_per_second(dataset: Dataset, seconds: float = 3.0) -> float:
    """The middle one of many batches: other work on the machine disturbs it least."""
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        indices = torch.randint(len(dataset), (BATCH,))
        start = time.perf_counter()
        dataset.batch(indices)
        times.append(time.perf_counter() - start)
    return BATCH / sorted(times)[len(times) // 2]


def measure() -> dict[str, Any]:
    cores = os.cpu_count() or 1
    torch.set_num_threads(1)
    digits = source()
    made = {
        "MultiMNIST": MultiMNIST(digits),
        "DiverseMultiMNIST": DiverseMultiMNIST(digits),
        "TranslatedMNIST": TranslatedMNIST(digits),
        "ShiftedMNIST": ShiftedMNIST(digits),
        "AffineMNIST": AffineMNIST(digits),
    }
    figures: dict[str, Any] = {name: round(images_per_second(dataset)) for name, dataset in made.items()}
    with tempfile.TemporaryDirectory() as folder:
        wall, processor = time.perf_counter(), time.process_time()
        pairs = len(load_toys("train", folder, workers=cores)) + len(load_toys("test", folder, workers=cores))
        figures["toys"] = round(pairs / (time.perf_counter() - wall))
        figures["toys_per_core"] = round(pairs / (time.process_time() - processor))
    return {"machine": platform.machine(), "cores": cores, "torch": torch.__version__, "per_second": figures}


def table(results: dict[str, Any]) -> str:
    """The figures as the page shows them."""
    figures = dict(results["per_second"])
    toys, per_core = figures.pop("toys"), figures.pop("toys_per_core")
    lines = ["| generated | a second |", "|---|---|"]
    lines += [f"| {name} | {value:,} images (one thread) |" for name, value in figures.items()]
    lines.append(
        f"| toys, both splits, cached to disk | {toys:,} stereo pairs ({results['cores']} threads); "
        f"{per_core:,} for each second of processor time |"
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    results = measure()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(results) + END + rest.split(END)[1])
    print(table(results))


if __name__ == "__main__":
    main()
