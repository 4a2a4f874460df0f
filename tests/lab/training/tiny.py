"""A recipe that trains in a second: a narrow CapsNet on some of the digits that ship with the package."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from torchcaps.lab.recipes import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Schedule, Transforms
from torchcaps.models.sabour2017 import CapsNetConfig

MODEL = CapsNetConfig(stem_channels=4, kernel_size=9, primary_caps=2, primary_pose=4, class_pose=4, decoder=False)
TIMES = ("seconds", "examples_per_second")


def recipe(**changes: Any) -> AnyRecipe:
    """Two epochs of 4 steps, the last of each smaller, with validation examples and random crops."""
    plain = Recipe(
        name="tiny",
        claim=Claim("nobody's table", "accuracy", 90.0),
        model_name="sabour2017_mnist",
        model=MODEL,
        data=Data("mnist_sample", val_size=20, limit=45, test_limit=30),
        transforms=Transforms(pad=2),
        loss=Loss("margin"),
        optimizer=Optimizer("adam", lr=3e-3),
        schedule=Schedule("warmup_cosine", momentum_low=0.8),
        epochs=2.0,
        batch_size=12,
        seed=3,
    )
    return dataclasses.replace(plain, **changes)


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def untimed(folder: Path) -> list[dict[str, Any]]:
    """The metrics, without what a clock said."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
