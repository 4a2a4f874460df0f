"""A recipe changed as the command line does it: ``--optimizer.lr 0.01 --model.routing em``."""

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import tyro

from torchcaps.lab.recipes.base import AnyRecipe, Recipe
from torchcaps.lab.recipes.options import check_options
from torchcaps.lab.recipes.registry import get
from torchcaps.lab.recipes.suiting import explain_loss, suit_loss

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
        return _parsed(recipe, arguments)  # prints, and ends the program
    check_options(recipe, arguments)
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(heard):
            after = _parsed(recipe, arguments)
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


def _parsed(recipe: AnyRecipe, arguments: Sequence[str]) -> AnyRecipe:
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
