"""``torchcaps train``: a recipe, with any of its fields changed, into a run folder."""

import dataclasses
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from torchcaps.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from torchcaps.lab.recipes import AnyRecipe, Scale
    from torchcaps.lab.training import Run
    from torchcaps.lab.training.examples import RecipeData
else:
    from typing import Literal

    Scale = Literal["paper", "laptop", "smoke"]  # as in recipes.base, which is slow to import

DEFAULT = "quickstart"


@dataclass(frozen=True)
class Train:
    """Train a recipe (`torchcaps list` names them). Any field of it can be changed here too: `torchcaps train RECIPE
    --help` shows them all. The same command under torchrun trains with many processes."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE|PATH")] = ""
    """Name of the recipe; quickstart if left out, or that of the run to resume. Or a path to your own data: a folder
    with a folder of images for each class, a .csv, .tsv or .jsonl of texts, or an .npz of arrays."""
    scale: Scale = "paper"
    """The paper's size, one for two cores and an hour, or two steps."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Run folder; runs/RECIPE-SCALE-CHANGES-seedK if left out."""
    resume: bool = False
    """Go on from the last checkpoint of the run folder; with --out alone, the recipe is the folder's."""
    overwrite: bool = False
    """Delete the run that is in the run folder, and start anew."""
    accept_changed_data: bool = False
    """Go on although the data are not those that the run was begun with."""
    device: str = ""
    """cpu, cuda or cuda:1; a GPU if there is one if left out."""
    threads: int | None = None
    """Threads of a process; torch's own choice if left out."""
    every: int | None = None
    """Steps between checkpoints; one a minute if left out."""
    keep_best: int = 1
    """Checkpoints to keep, of those best on validation examples."""
    keep_last: int = 2
    """Checkpoints to keep, of the last ones."""
    results: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for a copy of the record, in a folder of its recipe; none if left out."""
    no_report: bool = False
    """Write no report.html at the end."""
    no_doctor: bool = False
    """Give no warnings of inputs, labels and capsules that look wrong in the first hundred steps, nor of chance."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Train":
        """The command's own options; the rest is for the recipe."""
        named = bool(arguments) and not arguments[0].startswith("-")
        if named and any(word in ("-h", "--help") for word in arguments):
            known, rest = cls._split([word for word in arguments if word not in ("-h", "--help")])
            return known._with_overrides((*rest, "--help"))
        known, rest = cls._split(arguments)
        return known._with_overrides(tuple(rest))

    def _with_overrides(self, overrides: tuple[str, ...]) -> "Train":
        """The command with what it changes of the recipe; a path in place of a recipe becomes one that takes it."""
        if not self.recipe:
            return dataclasses.replace(self, overrides=overrides)
        from torchcaps.lab.recipes import RECIPES
        from torchcaps.lab.recipes.own import recipe_for

        found = None if self.recipe in RECIPES else recipe_for(self.recipe)
        if found is None:
            return dataclasses.replace(self, overrides=overrides)
        return dataclasses.replace(self, recipe=found.recipe, overrides=(*found.options, *overrides))

    @classmethod
    def _split(cls, arguments: Sequence[str]) -> tuple["Train", list[str]]:
        config = (tyro.conf.FlagCreatePairsOff,)
        known, rest = tyro.cli(
            cls, prog="torchcaps train", args=list(arguments), return_unknown_args=True, config=config
        )
        # With words that it does not know, tyro takes a name that was left out for an empty list.
        return (dataclasses.replace(known, recipe="") if known.recipe == "[]" else known), rest

    def run(self) -> int:
        from rich.console import Console

        from torchcaps.lab.training import StoppedError, TrainOptions, train
        from torchcaps.lab.training.memory import keep_freed_memory

        keep_freed_memory()
        console = Console() if int(os.environ.get("RANK", "0")) == 0 else None
        data, scale, folder = self._choose(console)
        recipe = data.recipe
        options = TrainOptions(
            device=self.device,
            threads=self.threads,
            overwrite=self.overwrite,
            accept_changed_data=self.accept_changed_data,
            every=self.every,
            keep_last=self.keep_last,
            keep_best=self.keep_best,
            doctor=not self.no_doctor,
            results=self.results,
            overrides=self.overrides,
            again=_again(folder, recipe),
        )
        try:
            run = train(recipe, folder, scale=scale, resume=self.resume, console=console, options=options, data=data)
        except StoppedError as stopped:
            if console is not None:
                print(f"torchcaps: {stopped}", file=sys.stderr)
            return 130
        if console is not None:
            self._end(run, console)
        return 0

    def _choose(self, console: "Console | None") -> "tuple[RecipeData, str, Path]":
        """The recipe with its data, its scale, and where its run goes."""
        from torchcaps.lab.recipes import configure
        from torchcaps.lab.training import Run
        from torchcaps.lab.training.examples import RecipeData
        from torchcaps.lab.training.records import label, slug

        if self.resume and self.out is not None:
            _check_run(self.out)
        if self.resume and not self.recipe and self.out is not None:
            if self.overrides:
                raise ValueError(f"a run is resumed as it was; leave out {' '.join(self.overrides)}")
            run = Run.open(self.out)
            return run.data, run.scale, self.out
        name = self.recipe or DEFAULT
        say = None if console is None else lambda text: console.print(printable(text), soft_wrap=True, markup=False)
        data = RecipeData(configure(name, self.scale, self.overrides, say))
        recipe = data.fit(say)
        folder = Path("runs") / f"{slug(name)}-{label(self.scale, recipe.seed, self.overrides)}"
        if self.resume:
            _check_run(self.out or folder)
        return data, self.scale, self.out or folder

    def _end(self, run: "Run", console: "Console") -> None:
        """The report, and what to do next."""

        def say(text: str) -> None:
            console.print(text, soft_wrap=True, markup=False, highlight=False)

        if not self.no_report and importlib.util.find_spec("torchcaps.lab.reports") is not None:
            from torchcaps.lab.reports import run_report  # pyright: ignore

            try:
                run_report(run)
                say(f"report: {run.folder / 'report.html'}")
            except (ValueError, OSError, ImportError) as error:
                say(f"no report: {error}")
        folder = shlex.quote(str(run.folder)) + _import_option(run.recipe)
        say("next:")
        say(f"  torchcaps evaluate {folder}      per-class accuracy, confusion matrix, other data")
        say(f"  torchcaps explain {folder}       what its capsules say")
        say(f"  torchcaps doctor {folder}        why it does not learn, if so")


def _check_run(folder: Path) -> None:
    """That there is a run to resume; a name that was misspelled must not start another training."""
    from torchcaps.lab.training.run import find_runs

    if (folder / "recipe.json").is_file():
        return
    what = "is no run folder" if folder.exists() else "does not exist"
    near = "".join(f"\n  {path}" for path in find_runs(folder))
    hint = f"runs nearby:{near}" if near else "there is no run nearby"
    raise ValueError(f"cannot resume: {folder} {what}; leave out --resume to start a training there; {hint}")


def _import_option(recipe: "AnyRecipe") -> str:
    """What a command needs besides the folder of a run whose routing is the user's own."""
    module, colon, _ = getattr(recipe.model, "routing", "").partition(":")
    return f" --import {shlex.quote(module)}" if colon else ""


def _again(folder: Path, recipe: "AnyRecipe") -> str:
    """The command that goes on with a run."""
    given = f"torchcaps train --resume --out {shlex.quote(str(folder))}{_import_option(recipe)}"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return given
    return f"{given}   (after torchrun's own options, as before: torchrun … -m {given})"
