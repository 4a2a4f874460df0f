"""Recipes as JSON and back: everything is written, and only what is exactly a recipe is read."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Recipe
from torchcaps.lab.recipes.trained import check_preprocessing
from torchcaps.lab.recipes.upgrade import upgrade_recipe
from torchcaps.typed import read_dataclass, show

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
LONGEST_NAME = 100
LATER = ("eval_every", "patience")  # fields that recipes of older runs lack: what those did is the default
LATER_WITHIN: dict[str, dict[str, Any]] = {"optimizer": {"eps": 1e-8}}  # the same within parts, and what those did


def to_json(recipe: AnyRecipe) -> dict[str, Any]:
    """The whole recipe as what ``json.dumps`` takes, the model's configuration included."""
    written = _written(recipe, recipe.name)
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
    for part, defaults in LATER_WITHIN.items():
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


def _written(value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _written(getattr(value, name), f"{place}.{name}") for name in names}
    if isinstance(value, tuple | list):
        return [_written(item, place) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{place} is a {type(value).__name__}, which cannot be written down; use a name in its place")
