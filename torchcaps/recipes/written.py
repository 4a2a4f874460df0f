"""Recipes as JSON and back: everything is written, and only what is exactly a recipe is read."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torchcaps.models as models
from torchcaps.recipes.base import AnyRecipe, Recipe
from torchcaps.recipes.changes import suggestion

LATER = ("look_every",)  # fields that recipes of older runs lack: what those did is the default


def to_json(recipe: AnyRecipe) -> dict[str, Any]:
    """The whole recipe as what ``json.dumps`` takes, the model's configuration included."""
    written = _written(recipe, recipe.name)
    assert isinstance(written, dict)
    return written


def from_json(written: Any) -> AnyRecipe:
    """The recipe that ``to_json`` wrote. A field too many, too few or of another type is an error that names it."""
    if not isinstance(written, Mapping):
        raise ValueError(f"a recipe is a JSON object; got {type(written).__name__}")
    name = written.get("model_name")
    if not isinstance(name, str):
        raise ValueError(f"a recipe names its model in 'model_name'; got {name!r}")
    config = type(models.entry(name).config)
    return _dataclass_read(Recipe, written, "recipe", {"model": config})


def _written(value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _written(getattr(value, name), f"{place}.{name}") for name in names}
    if isinstance(value, tuple | list):
        return [_written(item, place) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{place} is a {type(value).__name__}, which cannot be written down; use a name in its place")


def _dataclass_read(kind: Any, written: Any, place: str, known: Mapping[str, Any] | None = None) -> Any:
    if not isinstance(written, Mapping):
        raise ValueError(f"{place} is {written!r}; expected an object with the fields of {kind.__name__}")
    hints = get_type_hints(kind) | dict(known or {})
    names = [field.name for field in dataclasses.fields(kind)]
    for given in written:
        if given not in names:
            raise ValueError(f"{place} has a field {given!r} that is not known; {suggestion(str(given), names)}")
    missing = [name for name in names if name not in written and name not in LATER]
    if missing:
        raise ValueError(f"{place} lacks {', '.join(map(repr, missing))}; a recipe has all its fields")
    return kind(**{name: _read(hints[name], written[name], f"{place}.{name}") for name in names if name in written})


def _read(kind: Any, written: Any, place: str) -> Any:
    """A value of this type; types are those that recipes and configurations of models have."""
    if dataclasses.is_dataclass(kind):
        return _dataclass_read(kind, written, place)
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(inside, written, place)
    if origin is Literal and any(written == choice and type(written) is type(choice) for choice in inside):
        return written
    if origin is tuple and isinstance(written, list | tuple):
        kinds = inside[:1] * len(written) if inside[1:] == (...,) else inside
        if len(kinds) == len(written):
            return tuple(_read(one, item, place) for one, item in zip(kinds, written, strict=True))
    if kind is float and isinstance(written, int) and not isinstance(written, bool):
        return float(written)
    if (kind is type(None) and written is None) or (isinstance(kind, type) and type(written) is kind):
        return written
    raise ValueError(f"{place} is {written!r}; expected {_said(kind)}")


def _one_of(kinds: tuple[Any, ...], written: Any, place: str) -> Any:
    for kind in kinds:
        try:
            return _read(kind, written, place)
        except ValueError:
            continue
    raise ValueError(f"{place} is {written!r}; expected {' or '.join(map(_said, kinds))}")


def _said(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if kind is type(None):
        return "null"
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
