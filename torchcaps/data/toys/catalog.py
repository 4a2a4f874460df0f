"""The fifty toys: five categories of ten instances, which ones are for training, and how a seed varies them."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from torchcaps.data.counter import Counter
from torchcaps.data.toys.airplanes import AIRPLANES, build_airplane
from torchcaps.data.toys.animals import ANIMALS, build_animal
from torchcaps.data.toys.cars import CARS, build_car
from torchcaps.data.toys.humans import HUMANS, build_human
from torchcaps.data.toys.solids import Solid, fit_solids
from torchcaps.data.toys.trucks import TRUCKS, build_truck

# In smallNORB's order, with its division of the instances.
CATEGORIES = ("animal", "human", "airplane", "truck", "car")
INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
VARIATION = 0.05
"""A seed changes every length, angle and paint by up to this part of it."""

_BUILDERS: dict[str, tuple[tuple[Any, ...], Callable[[Any], list[Solid]]]] = {
    "animal": (ANIMALS, build_animal),
    "human": (HUMANS, build_human),
    "airplane": (AIRPLANES, build_airplane),
    "truck": (TRUCKS, build_truck),
    "car": (CARS, build_car),
}


def build_toy(category: str, instance: int, seed: int = 0) -> list[Solid]:
    """One toy, standing ready to be photographed.

    >>> len(build_toy("car", 5)) > 10
    True
    """
    if category not in _BUILDERS:
        raise ValueError(f"toys are of the categories {', '.join(CATEGORIES)}; got {category!r}")
    plans, build = _BUILDERS[category]
    if not 0 <= instance < len(plans):
        raise ValueError(f"{category} has instances 0 to {len(plans) - 1}; got {instance}")
    plan = plans[instance]
    numbers = [field.name for field in fields(plan) if isinstance(getattr(plan, field.name), int | float)]
    # One stream for each toy, one index for each of its numbers.
    stream = CATEGORIES.index(category) * len(plans) + instance
    factors = Counter(seed).uniform(torch.arange(len(numbers)), stream, 1 - VARIATION, 1 + VARIATION).tolist()
    changed = {name: getattr(plan, name) * factor for name, factor in zip(numbers, factors, strict=True)}
    return fit_solids(build(replace(plan, **changed)))
