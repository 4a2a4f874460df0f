"""Write the table of recipes into docs/recipes.md, from the recipes themselves.

Usage: python scripts/write_recipe_table.py
"""

from pathlib import Path

import torchcaps.lab.recipes as recipes
from torchcaps.files import write_text

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
START, END = "<!-- recipes: written by scripts/write_recipe_table.py -->", "<!-- end of recipes -->"


def table() -> str:
    lines = [
        "| recipe | model | data | claim | target, % | paper's scale | laptop: data, epochs, time |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in recipes.list():
        recipe, laptop = recipes.get(name), recipes.get(name, "laptop")
        claim = recipe.claim
        target = "–" if claim.target is None else f"{claim.target:g} {claim.metric}"
        full = f"{recipe.epochs:g} epochs, batch {recipe.batch_size}; {recipe.cost}"
        small = f"{_data(laptop)}, {laptop.epochs:g}, {laptop.cost}"
        lines.append(
            f"| `{name}` | `{recipe.model_name}` | {_data(recipe)} | {claim.table} | {target} | {full} | {small} |"
        )
    return "\n".join(lines)


def _data(recipe: recipes.AnyRecipe) -> str:
    some = f" ({recipe.data.limit:,})" if recipe.data.limit else ""
    return f"{recipe.data.train}{some}" + (f" → {recipe.data.test}" if recipe.data.test else "")


def written(page: str) -> str:
    """The page with its table replaced by the present one."""
    before, rest = page.split(START)
    return f"{before}{START}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    write_text(PAGE, written(PAGE.read_text(encoding="utf-8")))
