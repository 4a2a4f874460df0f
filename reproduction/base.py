"""What a campaign consists of, as data: points, each with claims, trainings and studies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torchcaps.lab.training.records import label

CampaignScale = Literal["laptop", "smoke"]
SEEDS = (0, 1, 2)
"""Three at least wherever a difference is claimed."""


@dataclass(frozen=True)
class Item:
    """One line of a table: a recipe, trained with several seeds.

    ``changes`` make the line what it is, at every scale; ``size`` says how much a laptop does of it (its data, its
    length), and is left out at the scale of two steps.
    """

    name: str  # in the table, and for claims and studies to refer to
    recipe: str
    minutes: float  # of one seed at laptop scale on one core, about
    changes: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    def overrides(self, scale: CampaignScale) -> tuple[str, ...]:
        """The options of the recipe, but for the seed."""
        return (*self.changes, *self.size) if scale == "laptop" else self.changes


@dataclass(frozen=True)
class Job:
    """One training: an item with one of its seeds."""

    point: str
    item: Item
    seed: int
    scale: CampaignScale

    @property
    def arguments(self) -> tuple[str, ...]:
        """What ``torchcaps train`` would be told, besides the recipe and its scale."""
        return (*self.item.overrides(self.scale), "--seed", str(self.seed))

    @property
    def group(self) -> str:
        """The folder of the recipe's records."""
        return self.item.recipe.replace("/", "-")

    @property
    def label(self) -> str:
        """The name among the runs of the recipe."""
        return label(self.scale, self.seed, self.arguments)

    @property
    def name(self) -> str:
        return f"{self.group}-{self.label}"


@dataclass(frozen=True)
class PaperClaim:
    """What a paper says, in a form that intervals can decide: ``better`` is more accurate than ``worse``; or, with
    ``error_at_most``, that ``better`` errs on no more of its test examples than so many percent.

    ``otherwise`` is the likely reason if it is not reproduced: what the setting lacks, known beforehand or found later.
    """

    text: str
    source: str
    better: str
    worse: str = ""
    error_at_most: float | None = None
    otherwise: str = ""


@dataclass(frozen=True)
class Study:
    """A measurement on finished runs of these items, or on none: their first seeds, or every seed where a difference is
    claimed. ``kind`` names the function."""

    name: str  # of its record, among all studies
    title: str
    kind: str
    runs: tuple[str, ...] = ()
    minutes: float = 1.0
    every_seed: bool = False


@dataclass(frozen=True)
class Point:
    """One of the questions of the campaign."""

    name: str  # for --only
    title: str
    about: str
    items: tuple[Item, ...]
    claims: tuple[PaperClaim, ...] = ()
    studies: tuple[Study, ...] = ()

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: two items of one name among {names}")
        referred = [name for claim in self.claims for name in (claim.better, claim.worse) if name]
        referred += [name for study in self.studies for name in study.runs]
        for name in referred:
            if name not in names:
                raise ValueError(f"{self.name}: no item {name!r}; there are {', '.join(names)}")

    def item(self, name: str) -> Item:
        return next(item for item in self.items if item.name == name)

    def jobs(self, scale: CampaignScale) -> Iterator[Job]:
        for item in self.items:
            for seed in item.seeds:
                yield Job(self.name, item, seed, scale)
