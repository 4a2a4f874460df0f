"""Recipes changed on the command line: ``--optimizer.lr 0.01 --model.routing em``. Unknown options get suggestions."""

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import tyro
from tyro.conf import Fixed

from torchcaps.lab.recipes.base import AnyRecipe, Recipe
from torchcaps.lab.recipes.changes import explain_loss, suit_loss
from torchcaps.lab.recipes.registry import get

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


SHORT = {
    "--data": "--data.train",
    "--encoder": "--text.encoder",
    "--text-column": "--text.text-column",
    "--label-column": "--text.label-column",
}
"""What people type first, and the field that is meant."""
FRAME = re.compile(r"^[\s│|+]+|[\s│|+]+$")
RULE = re.compile(r"[-─╭╮╰╯\s]*")


def configure(
    name: str, scale: str = "paper", arguments: Sequence[str] = (), say: Callable[[str], None] | None = None
) -> AnyRecipe:
    """A recipe with the fields that these arguments name replaced; a field that does not exist is an error.

    Another routing brings a loss that suits it, unless ``--loss.kind`` names one; ``say`` is told, one line in all.

    >>> configure("sabour2017/mnist", "smoke", ["--routing.num-iters", "1"]).routing.num_iters
    1
    """
    recipe = get(name, scale)
    arguments = [_full(word) for word in arguments]
    if any(word in ("-h", "--help") for word in arguments):
        return _parse(recipe, arguments)  # prints, and ends the program
    check_options(recipe, arguments)
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(heard):
            after = _parse(recipe, arguments)
    except SystemExit:
        raise ValueError(f"{name}: {_short(heard.getvalue())}") from None
    if not any(word.partition("=")[0] == "--loss.kind" for word in arguments):
        after = replace(after, loss=suit_loss(recipe, after))
    if say is not None:
        explain_loss(recipe, after, say)
    return after


def _full(word: str) -> str:
    """An option under its full name; ``--data=my.csv`` too."""
    option, equals, value = word.partition("=")
    return SHORT.get(option, option) + equals + value


def _parse(recipe: AnyRecipe, arguments: Sequence[str]) -> AnyRecipe:
    kind = type(recipe.model)
    prog = f"torchcaps train {recipe.name}"
    return tyro.cli(Recipe[kind], default=recipe, args=list(arguments), prog=prog, description=_about(recipe))


def _about(recipe: AnyRecipe) -> str:
    return f"{recipe.name}: {recipe.model_name} on {recipe.data.train}. Every field of the recipe can be changed:"


def _short(printed: str) -> str:
    """The parser's words without the frame around them, its heading, and the help text of the option."""
    lines = [FRAME.sub("", line) for line in printed.splitlines()]
    said: list[str] = []
    for line in lines[1:]:
        if line.startswith(("Argument helptext", "For full helptext")):
            break
        if not RULE.fullmatch(line):
            said.append(line)
    return f"{' '.join(said)} (--help shows all options)"
