"""Recipes from recipes: fields replaced by dotted names, and what is different between two of them."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torchcaps.lab.recipes.base import AnyRecipe, Recipe
from torchcaps.lab.recipes.suiting import suit_loss

Changes = Mapping[str, Any]
"""New values by dotted names: ``{"model.stem_channels": 64, "epochs": 3.0}``."""
Part = TypeVar("Part")


class Difference(NamedTuple):
    """A field that two recipes disagree about."""

    field: str
    before: Any
    after: Any


def changed(recipe: Part, changes: Changes) -> Part:
    """The recipe, or a part of one, with these fields replaced. Another routing brings a loss that suits it, unless the
    changes name a loss.

    >>> from torchcaps.lab.recipes.base import Data
    >>> changed(Data("mnist"), {"limit": 100}).limit
    100
    """
    assert dataclasses.is_dataclass(recipe)
    assert not isinstance(recipe, type)
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for dotted, value in changes.items():
        name, dot, rest = dotted.partition(".")
        check_field(recipe, name)
        if dot:
            inner.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, further in inner.items():
        own[name] = changed(own.get(name, getattr(recipe, name)), further)
    after = dataclasses.replace(recipe, **own)
    if isinstance(recipe, Recipe) and isinstance(after, Recipe) and not {"loss", "loss.kind"} & set(changes):
        return dataclasses.replace(after, loss=suit_loss(recipe, after))
    return after


def check_field(part: object, name: str) -> None:
    """That a dataclass has this field; the error names the ones like it."""
    known = [field.name for field in dataclasses.fields(part)]  # pyright: ignore[reportArgumentType]
    if name not in known:
        raise ValueError(f"{type(part).__name__} has no field {name!r}; {suggestion(name, known)}")


def suggestion(given: str, known: list[str]) -> str:
    """What may have been meant by a name that is not known; all that is known if nothing is like it."""
    close = difflib.get_close_matches(given, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are {', '.join(known)}"


def differences(before: AnyRecipe, after: AnyRecipe) -> list[Difference]:
    """The fields that differ, in order, by dotted names; of a model of another kind, only that it is another."""
    return list(_differences("", before, after))


def _differences(prefix: str, before: Any, after: Any) -> Iterator[Difference]:
    if before == after:
        return
    if not dataclasses.is_dataclass(before) or type(before) is not type(after):
        yield Difference(prefix, before, after)
        return
    for field in dataclasses.fields(before):
        dotted = f"{prefix}.{field.name}" if prefix else field.name
        yield from _differences(dotted, getattr(before, field.name), getattr(after, field.name))
