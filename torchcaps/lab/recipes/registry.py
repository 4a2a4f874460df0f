"""All recipes by name."""

import difflib
from collections.abc import Callable

from torchcaps.lab.recipes import (
    comparison,
    efficient2021,
    heinsen2019,
    heinsen2022,
    hinton2018,
    own,
    quickstart,
    sabour2017,
    sr2019,
    tsai2020,
    vb2020,
    zhao2020,
)
from torchcaps.lab.recipes.base import AnyRecipe, Scale
from torchcaps.typed import suggest

MOST_ALIKE = 3
SCALES: tuple[Scale, ...] = ("paper", "laptop", "smoke")

RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {
    **quickstart.RECIPES,
    **sabour2017.RECIPES,
    **hinton2018.RECIPES,
    **heinsen2019.RECIPES,
    **heinsen2022.RECIPES,
    **tsai2020.RECIPES,
    **zhao2020.RECIPES,
    **sr2019.RECIPES,
    **vb2020.RECIPES,
    **efficient2021.RECIPES,
    **comparison.RECIPES,
    **own.RECIPES,
}


def list_recipes(contains: str = "") -> list[str]:
    """The names of all recipes, or of those whose name contains a word.

    >>> list_recipes("sabour2017/multi")
    ['sabour2017/multimnist', 'sabour2017/multimnist-1-iter', 'sabour2017/multimnist-cnn']
    """
    return [name for name in RECIPES if contains in name]


def get(name: str, scale: str = "paper") -> AnyRecipe:
    """A recipe by its name, at one of the three scales.

    >>> get("sabour2017/mnist").batch_size
    128
    """
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}; {_suggest_recipe(name)} (`torchcaps list` shows all)")
    if scale not in SCALES:
        raise ValueError(f"no scale {scale!r}; {suggest(scale, list(SCALES))}")
    return RECIPES[name](scale)


def _suggest_recipe(name: str) -> str:
    """The few names most like one, by the whole of it or by what stands after the paper."""

    def likeness(known: str) -> float:
        ends = (known, known.rpartition("/")[2])
        close = max(difflib.SequenceMatcher(None, name.lower(), end).ratio() for end in ends)
        return close + (bool(name) and name.lower() in known)

    nearest = sorted(RECIPES, key=likeness, reverse=True)[:MOST_ALIKE]
    return f"did you mean {' or '.join(map(repr, nearest))}?"
