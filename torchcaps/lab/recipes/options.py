"""Options that a recipe does not have: the ones that may have been meant."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from tyro.conf import Fixed

from torchcaps.lab.recipes.base import AnyRecipe, Recipe

WORDS = {
    "learning-rate": "lr",
    "iterations": "num-iters",
    "iters": "num-iters",
    "batch": "batch-size",
    "dataset": "train",
    "validation": "validation",
    "val": "validation",
    "gradient-clip": "clip",
    "optim": "kind",
}
"""Other programs' words for the ends of our options' names."""
MOST = 3
FIXED = [name for name, kind in Recipe.__annotations__.items() if Fixed in getattr(kind, "__metadata__", ())]


def check_options(recipe: AnyRecipe, arguments: Sequence[str]) -> None:
    """That every option is a field of the recipe; the error names the fields like it."""
    known = list(option_names(recipe))
    for word in arguments:
        option = word.partition("=")[0]
        if option.startswith("--") and option.replace("_", "-") not in known and option != "--help":
            raise ValueError(f"{recipe.name} has no option {option}{_suggest(option, known)}")


def option_names(recipe: AnyRecipe) -> Iterator[str]:
    """All options that change a recipe: ``--optimizer.lr``; ``--model.decoder`` and ``--model.no-decoder``."""
    yield from _names("", recipe)


def _names(prefix: str, part: Any) -> Iterator[str]:
    for field in dataclasses.fields(part):
        value, name = getattr(part, field.name), field.name.replace("_", "-")
        if not prefix and field.name in FIXED:
            continue
        if dataclasses.is_dataclass(value):
            yield from _names(f"{prefix}{name}.", value)
            continue
        yield f"--{prefix}{name}"
        if isinstance(value, bool):
            yield f"--{prefix}no-{name}"


def _suggest(option: str, known: Sequence[str]) -> str:
    given = option.removeprefix("--").lower().replace("_", "-")
    path, dot, end = given.rpartition(".")
    given = f"{path}{dot}{WORDS.get(end, end)}"
    likeness = {name: _likeness(given, name.removeprefix("--")) for name in known}
    least = max(0.7, max(likeness.values()) - 0.1)
    close = sorted((name for name in known if likeness[name] >= least), key=lambda name: -likeness[name])[:MOST]
    meant = f"; did you mean {' or '.join(close)}?" if close else ";"
    return f"{meant} (--help shows all options)"


def _likeness(given: str, name: str) -> float:
    """How alike two names are, as a whole or in what stands after the last point."""
    whole = difflib.SequenceMatcher(None, given, name).ratio()
    end = difflib.SequenceMatcher(None, given.rpartition(".")[2], name.rpartition(".")[2]).ratio()
    return max(whole, 0.95 * end) + 0.05 * whole  # the whole decides between ends that are the same
