"""Recipes from recipes: fields replaced by dotted names with a loss that suits the routing, and what differs."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torchcaps.lab.recipes.base import AnyRecipe, Loss, Recipe
from torchcaps.losses import choose_loss
from torchcaps.routing import resolve
from torchcaps.typed import suggest


def suit_loss(before: AnyRecipe, after: AnyRecipe) -> Loss:
    """The loss of ``after``, which is ``before`` with other fields: the one that it has if its routing is the same or
    learns from it, otherwise the first of the routing's ``suited_losses`` for such labels."""
    loss, name = after.loss, _routing(after)
    if name is None or name == _routing(before):
        return loss
    suited = resolve(name).suited_losses
    kind = loss.kind if loss.kind in suited else choose_loss(suited, multi_label=loss.decision != "argmax")
    # A margin on the agreement itself is for the routing that the recipe had; presences are there for all.
    return Loss(kind, "presence", loss.decision, loss.margin_steps, loss.reconstruction)  # pyright: ignore[reportArgumentType]


def explain_loss(before: AnyRecipe, after: AnyRecipe, say: Callable[[str], None]) -> None:
    """Tell ``say`` which loss a change of the routing brought, or that the one which was asked for does not suit it."""
    name = _routing(after)
    if name is None or name == _routing(before):
        return
    suited = resolve(name).suited_losses
    if after.loss.kind not in suited:
        say(
            f"loss {after.loss.kind}, as asked for; {name} routing may not learn from it: leave out --loss.kind, or "
            f"take {' or '.join(suited)}"
        )
    elif after.loss.kind != before.loss.kind:
        say(
            f"loss {before.loss.kind} → {after.loss.kind}, which suits {name} routing; --loss.kind {before.loss.kind} "
            f"keeps the recipe's own"
        )


def _routing(recipe: AnyRecipe) -> str | None:
    """The name of the model's routing, where it is an option."""
    return getattr(recipe.model, "routing", None)


Changes = Mapping[str, Any]
"""New values by dotted names: ``{"model.stem_channels": 64, "epochs": 3.0}``."""
Part = TypeVar("Part")


class Difference(NamedTuple):
    """A field that two recipes disagree about."""

    field: str
    before: Any
    after: Any


def change(recipe: Part, changes: Changes) -> Part:
    """The recipe, or a part of one, with these fields replaced. Another routing brings a loss that suits it, unless the
    changes name a loss.

    >>> from torchcaps.lab.recipes.base import Data
    >>> change(Data("mnist"), {"limit": 100}).limit
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
        own[name] = change(own.get(name, getattr(recipe, name)), further)
    after = dataclasses.replace(recipe, **own)
    if isinstance(recipe, Recipe) and isinstance(after, Recipe) and not {"loss", "loss.kind"} & set(changes):
        return dataclasses.replace(after, loss=suit_loss(recipe, after))
    return after


def check_field(part: object, name: str) -> None:
    """That a dataclass has this field; the error names the ones like it."""
    known = [field.name for field in dataclasses.fields(part)]  # pyright: ignore[reportArgumentType]
    if name not in known:
        raise ValueError(f"{type(part).__name__} has no field {name!r}; {suggest(name, known)}")


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
