"""To come."""

from collections.abc import Callable

from torchcaps.recipes.base import AnyRecipe, Scale

RECIPES: dict[str, Callable[[Scale], AnyRecipe]] = {}
