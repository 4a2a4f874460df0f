"""What of a recipe goes into the file of its model, and back: names of classes, preprocessing, loss."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torchcaps.lab.recipes.base import AnyRecipe, Loss, Transforms
from torchcaps.lab.recipes.upgrade import upgrade_transforms
from torchcaps.models import Training
from torchcaps.typed import check_numbers, read_fields

LARGEST = 1 << 13
"""Pixels of a side, degrees, shares: no number of a preprocessing is larger."""
Part = TypeVar("Part", Transforms, Loss)


def training_of(recipe: AnyRecipe, class_names: Sequence[str], image_shape: Sequence[int] | None) -> Training:
    """What the model of this recipe needs besides its weights; ``image_shape`` is that before preprocessing."""
    shape = None if image_shape is None else tuple(image_shape)
    return Training(tuple(class_names), shape, _changed_fields(recipe.transforms), _changed_fields(recipe.loss))


def preprocessing_of(training: Training, source: str) -> Transforms:
    """How the images of a model are prepared, as its file says."""
    fields = read_fields(Transforms, upgrade_transforms(training.preprocessing), f"{source}: preprocessing")
    check_preprocessing(fields, source)
    return Transforms(**fields)


def check_preprocessing(fields: Mapping[str, Any], source: str) -> None:
    """That no image is made larger than images are."""
    check_numbers(fields, source, largest=LARGEST)


def loss_of(training: Training, source: str) -> Loss | None:
    """By which loss a model was trained, as its file says; ``None`` where it does not say."""
    return None if training.loss is None else Loss(**read_fields(Loss, training.loss, f"{source}: loss"))


def _changed_fields(part: Part) -> dict[str, Any]:
    """The fields that are not the default: those that are need not be written down."""
    default = type(part)()
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != getattr(default, name)
    }
