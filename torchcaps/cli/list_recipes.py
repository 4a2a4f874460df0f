"""``torchcaps list``: the recipes, with the papers' figures and what a run costs; one of them in detail."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import tyro

import torchcaps.lab.recipes as recipes
from torchcaps.lab.recipes import AnyRecipe, Claim

PAPERS = {
    "sabour2017": "Dynamic Routing Between Capsules",
    "hinton2018": "Matrix Capsules with EM Routing",
    "heinsen2019": "An Algorithm for Routing Capsules in All Domains",
    "heinsen2022": "An Algorithm for Routing Vectors in Sequences",
    "tsai2020": "Capsules with Inverted Dot-Product Attention Routing",
    "zhao2020": "An Efficient Agreement Mechanism in CapsNets by Pairwise Product",
    "sr2019": "Self-Routing Capsule Networks",
    "vb2020": "Capsule Routing via Variational Bayes",
    "efficient2021": "Efficient-CapsNet: Capsule Network with Self-Attention Routing",
    "comparison": "a controlled comparison of all routings",
    "own": "your own data",
}
WIDTHS = (32, 26, 18, 12, 6)
HEADING = ("recipe", "model", "data", "target", "laptop")
LEGEND = (
    "target: the paper's figure in percent, – where no text at hand prints one.  laptop: `--scale laptop`",
    "on 2 cores; at the papers' own scale, runs take hours to days on a GPU.",
    "torchcaps list NAME tells all about one; torchcaps train NAME --scale laptop runs it.",
)


class Line(NamedTuple):
    """What the listing says of a recipe."""

    name: str
    model: str
    data: str
    target: str
    cost: str


def line(name: str) -> Line:
    recipe, laptop = recipes.get(name), recipes.get(name, "laptop")
    data = recipe.data.train + (f" → {recipe.data.test}" if recipe.data.test else "")
    return Line(name, recipe.model_name, data, said_target(recipe.claim), laptop.cost.removesuffix(" on 2 cores"))


def said_target(claim: Claim) -> str:
    """The figure and what it measures, in few letters."""
    if claim.target is None:
        return "–"
    return f"{claim.target:g} % {'err' if claim.metric == 'error' else 'acc'}"


def listing(contains: str = "") -> list[str]:
    """The lines of the listing, at most 100 columns wide, recipes of a paper together."""
    printed = [_row(HEADING)]
    paper = ""
    for name in recipes.list(contains):
        group, slash, rest = name.partition("/")
        if slash and group != paper:
            printed += ["", f"{group}/   {PAPERS.get(group, '')}".rstrip()]
            paper = group
        printed += _rows(line(name)._replace(name=f"  {rest}" if slash else name))
    return [*printed, "", *LEGEND]


def _rows(one: Line) -> list[str]:
    """A line, and a second one where a model's name or the data do not fit the first."""
    model, more_model = _split(one.model, "_", WIDTHS[1])
    data, more_data = _split(one.data, " →", WIDTHS[2])
    printed = [_row((one.name, model, data, one.target, one.cost))]
    if more_model or more_data:
        second = tuple(f"  {more}" if more else "" for more in (more_model, more_data))
        printed.append(_row(("", *second, "", "")))
    return printed


def _split(text: str, mark: str, width: int) -> tuple[str, str]:
    """The text in two pieces if it is too long for one, the second beginning at a mark."""
    if len(text) <= width:
        return text, ""
    place = text.rfind(mark, 1, width)
    place = width if place < 0 else place
    return text[:place], text[place:].strip()


def _row(cells: tuple[str, ...]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def details(name: str) -> list[str]:
    """All about one recipe: the claim, and what each scale changes."""
    recipe = recipes.get(name)
    claim = recipe.claim
    figure = f"{claim.target:g} % {claim.metric}" if claim.target is not None else "no figure"
    printed = [
        f"{name}: {recipe.model_name} on {line(name).data}",
        f"  claim   {claim.table}: {figure}{f' ({claim.note})' if claim.note else ''}",
        f"  paper   {recipe.cost}: {_regime(recipe)}",
    ]
    for scale in ("laptop", "smoke"):
        other = recipes.get(name, scale)
        printed.append(f"  {scale:7} {other.cost}; it changes:")
        changes = [one for one in recipes.differences(recipe, other) if one.field != "cost"]
        printed += [f"          {one.field}: {_describe(one.before)} → {_describe(one.after)}" for one in changes]
    return [*printed, f"  run it: torchcaps train {name} --scale laptop   (--help shows every field)"]


def _regime(recipe: AnyRecipe) -> str:
    optimizer = recipe.optimizer
    return f"{recipe.epochs:g} epochs, batches of {recipe.batch_size}, {optimizer.kind} {optimizer.lr:g}"


def _describe(value: object) -> str:
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None or value == () else str(value)


@dataclass(frozen=True)
class ListRecipes:
    """ListRecipes the recipes: experiments of the papers with their figures, and what a run costs."""

    contains: Annotated[str, tyro.conf.Positional] = ""
    """Only names that contain this; of a recipe's whole name, all about it."""

    def run(self) -> int:
        if self.contains in recipes.RECIPES:
            print("\n".join(details(self.contains)))
            return 0
        if self.contains and not recipes.list(self.contains):
            recipes.get(self.contains)  # which says what is like it
        print("\n".join(listing(self.contains)))
        return 0
