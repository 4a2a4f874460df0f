"""The page about data says what the code does: its table is the present one and its examples run."""

import re
from pathlib import Path

import torch

from tests.support import script
from torchcaps import data

ROOT = Path(__file__).parent.parent.parent


def test_the_table_is_the_present_one():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert script("scripts/write_data_table").written(page) == page, "run: python scripts/write_data_table.py"


def test_the_examples_run():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)


def test_the_sample_is_what_its_script_chooses(real):
    real("mnist")
    build = script("scripts/build_mnist_sample")
    for split, per_class in build.PER_CLASS.items():
        small, whole = data.load("mnist_sample", split), data.load("mnist", split)
        labels = whole.batch(torch.arange(len(whole))).label
        chosen = build.spread(labels, per_class)
        assert (small.batch(torch.arange(len(small))).metadata["index"] == chosen).all()
