"""Recipes in files: as JSON, as a part of a model file, and as earlier versions wrote them."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Loss, Recipe, Transforms
from torchcaps.models import Training
from torchcaps.models.assembling import upgrade_config
from torchcaps.models.saving import OLD_NAMES
from torchcaps.typed import check_numbers, read_dataclass, read_fields, show

FIELDS = {"prepare": "transforms", "look_every": "eval_every", "accumulate": "grad_accum_steps"}
FIELDS_WITHIN = {"data": {"held_out": "val_size"}, "transforms": {"standardise": "standardize"}}
RECIPE_PREFIXES = {"stage/": "comparison/"}


def upgrade_recipe(written: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's JSON object with its fields under their present names.

    >>> upgrade_recipe({"name": "stage/toys", "data": {"held_out": 5}, "look_every": 2})
    {'name': 'comparison/toys', 'data': {'val_size': 5}, 'eval_every': 2}
    """
    found = rename(written, FIELDS)
    for part, names in FIELDS_WITHIN.items():
        if isinstance(found.get(part), Mapping):
            found[part] = rename(found[part], names)
    for old, new in RECIPE_PREFIXES.items():
        if isinstance(found.get("name"), str) and found["name"].startswith(old):
            found["name"] = new + found["name"].removeprefix(old)
    found |= {"model": upgrade_config(found["model"])} if "model" in found else {}
    if isinstance(found.get("model_name"), str):
        found["model_name"] = OLD_NAMES.get(found["model_name"], found["model_name"])
    return found


def upgrade_transforms(written: Mapping[str, Any]) -> dict[str, Any]:
    """The transforms of a recipe or a model file, with their fields under their present names."""
    return rename(written, FIELDS_WITHIN["transforms"])


def upgrade_state(written: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint."""
    return rename(written, {"held_out": "val_accuracy"})


def upgrade_metrics(written: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics."""
    return {**written, "kind": "val"} if written.get("kind") == "held_out" else written


def rename(written: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A JSON object with these keys renamed, in the order that it has."""
    return {names.get(key, key): value for key, value in written.items()}


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


NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
LONGEST_NAME = 100
LATER = ("eval_every", "patience", "weights")  # fields that recipes of older runs lack: what those did is the default
LATER_WITHIN: dict[str, dict[str, Any]] = {  # the same within parts, and what those did
    "optimizer": {"eps": 1e-8},
    "schedule": {"floor": 0.0},
    "transforms": {
        "rotation_share": 1.0,
        "shift_in_margins": False,
        "squish": 0.0,
        "erase": 0,
        "amounts": "uniform",
    },
}
LATER_IN_MODELS: dict[str, dict[str, Any]] = {  # the same within configurations of models
    "MatrixCapsConfig": {"stem_strides": (2,), "pose_norm": None, "class_weight_std": 0.01, "eps": 5e-4},
    "SabourMultiMNISTConfig": {"norm": False},
    "CapsNetConfig": {"squash": "rational", "class_squash": None},
    "DynamicOpponentConfig": {"squash": "rational", "class_squash": None},
    "EfficientConfig": {"class_squash": None},
}


def to_json(recipe: AnyRecipe) -> dict[str, Any]:
    """The whole recipe as what ``json.dumps`` takes, the model's configuration included."""
    written = _write(recipe, recipe.name)
    assert isinstance(written, dict)
    return written


def from_json(written: Any) -> AnyRecipe:
    """The recipe that ``to_json`` wrote. A field too many, too few or of another type is an error that names it."""
    if not isinstance(written, Mapping):
        raise ValueError(f"a recipe is a JSON object; got {type(written).__name__}")
    written = upgrade_recipe(written)
    check_name(written.get("name"))
    name = written.get("model_name")
    if not isinstance(name, str):
        raise ValueError(f"a recipe names its model in 'model_name'; got {show(name)}")
    config = type(models.entry(name).config)
    later = LATER_WITHIN | {"model": LATER_IN_MODELS.get(config.__name__, {})}
    for part, defaults in later.items():
        if isinstance(written.get(part), Mapping):
            written = {**written, part: {**defaults, **written[part]}}
    recipe = read_dataclass(Recipe, written, "recipe", {"model": config}, LATER)
    models.check_config(vars(recipe.model), "recipe.model")
    check_preprocessing(vars(recipe.transforms), "recipe.transforms")
    return recipe


def check_name(name: Any) -> None:
    """That a recipe's name is one: it becomes part of paths."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise ValueError(f"a recipe is named in letters, digits, '.', '-' and '_', with '/' between; got {show(name)}")


def _write(value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _write(getattr(value, name), f"{place}.{name}") for name in names}
    if isinstance(value, tuple | list):
        return [_write(item, place) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{place} is a {type(value).__name__}, which cannot be written down; use a name in its place")
