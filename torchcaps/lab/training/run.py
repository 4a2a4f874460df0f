"""A run folder: the recipe it was made by, its metrics, its checkpoints, its model. All that comes after training
starts from here."""

import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import torchcaps.models as models
from torchcaps.data.base import Examples
from torchcaps.files import read_object, sync_folder, write_json
from torchcaps.lab.loaders import Loader
from torchcaps.lab.recipes import AnyRecipe, from_json, model_fields, to_json, training_of
from torchcaps.lab.recipes.serialization import upgrade_metrics
from torchcaps.lab.training import checkpoints
from torchcaps.lab.training.checkpoints import Checkpoint
from torchcaps.lab.training.examples import RecipeData, Split
from torchcaps.lab.training.fingerprint import hash_recipe
from torchcaps.lab.training.scoring import ScoredOutputs
from torchcaps.models import Model
from torchcaps.models.base import mark_untrained
from torchcaps.typed import show

FORMAT = 1
SCALE = re.compile(r"(\w[\w.-]{0,99})?", re.ASCII)
LAUNCH = "launch.txt"
DELETING = ".deleting-"
FOLDERS = ("checkpoints", "tensorboard")
FILES = (
    "metrics.jsonl",
    "model.safetensors",
    "record.json",
    "report.html",
    "diagnosis.json",
    "not-finite-*",
    LAUNCH,
    "*.part",
)


@dataclass(frozen=True)
class Run:
    """One run of a recipe, finished or not."""

    folder: Path
    recipe: AnyRecipe
    scale: str = ""
    overrides: tuple[str, ...] = ()
    source: RecipeData | None = field(default=None, compare=False, repr=False)  # examples that are loaded already
    tested: ScoredOutputs | None = field(
        default=None, compare=False, repr=False
    )  # outputs of the test, just after training

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """The run of a folder.

        >>> Run.open("/nowhere")
        Traceback (most recent call last):
            ...
        ValueError: /nowhere is no run folder: there is no recipe.json in it; `torchcaps train` makes one
        """
        folder = Path(path)
        written = folder / "recipe.json"
        if not written.is_file():
            raise ValueError(f"{folder} is no run folder: there is no recipe.json in it; `torchcaps train` makes one")
        found = read_object(written, "format")
        if found["format"] != FORMAT:
            raise ValueError(
                f"{written} has the format {found['format']!r}; this version of torchcaps reads {FORMAT}. Use the "
                f"version that wrote it"
            )
        found = read_object(written, "recipe", "scale", "overrides")
        scale, overrides = found["scale"], found["overrides"]
        if not isinstance(scale, str) or not SCALE.fullmatch(scale):  # it becomes part of paths
            raise ValueError(f"{written}: scale is {show(scale)}; expected a word, such as 'laptop'")
        if not isinstance(overrides, list) or not all(isinstance(word, str) for word in overrides):
            raise ValueError(f"{written}: overrides is {show(overrides)}; expected a list of words")
        return cls(folder, _read_recipe(found["recipe"], written), scale, tuple(overrides))

    def write(self) -> None:
        """Make the folder, and write down what the run is."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        recipe, overrides = to_json(self.recipe), list(self.overrides)
        described = {"format": FORMAT, "scale": self.scale, "overrides": overrides, "recipe": recipe}
        write_json(self.folder / "recipe.json", described)

    def delete(self) -> None:
        """Delete what a run writes; whatever else is in the folder stays.

        Killed at any moment, what is left is the old run, unfinished, which can be resumed as such: the record goes
        first, all checkpoints go in one step, and the recipe goes last.
        """
        (self.folder / "record.json").unlink(missing_ok=True)
        sync_folder(self.folder)
        for name in FOLDERS:
            if (self.folder / name).is_dir():
                os.rename(self.folder / name, self.folder / f"{DELETING}{name}-{secrets.token_hex(4)}")
        sync_folder(self.folder)
        for pattern in (*FILES, "recipe.json"):
            for path in self.folder.glob(pattern):
                path.unlink()
        sync_folder(self.folder)
        for path in self.folder.glob(f"{DELETING}*"):
            shutil.rmtree(path, ignore_errors=True)

    def hash(self) -> str:
        """The SHA-256 of the recipe as it is in the folder, by which checkpoints know their run."""
        return hash_recipe(read_object(self.folder / "recipe.json", "recipe")["recipe"])

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def model(self, which: Literal["best", "last"] = "best") -> Model:
        """The run's model, ready for evaluation: the one that the recipe keeps (the best on validation examples, or the
        last if there were none or ``weights`` says so), or the last. With a moving average of the weights, that one."""
        if which not in ("best", "last"):
            raise ValueError(f"no model {which!r}; there are 'best' and 'last'")
        finished = self.folder / "model.safetensors"
        if which == "best" and finished.is_file():
            return self._finished_model(finished)
        return self.model_of(self.checkpoint(which))

    def _finished_model(self, path: Path) -> Model:
        """The model of the file, held to the record."""
        model, record = models.load(path).eval(), self.record() or {}
        recorded, found = record.get("weights_sha256"), models.checksum(model.state_dict())
        if recorded is not None and recorded != found:
            raise ValueError(
                f"{path} is not the model of this run: the SHA-256 of its weights is {found}, and record.json says "
                f"{recorded}; `torchcaps train --resume --out {self.folder}` builds it again"
            )
        mark_untrained(model, self.recipe.loss.reconstruction)  # files of the first format do not say
        return model

    def model_of(self, checkpoint: Checkpoint) -> Model:
        """The model of a checkpoint, ready for evaluation."""
        source = str(checkpoints.names(self.checkpoints, checkpoint.step)[0])
        fields = model_fields(self.recipe)
        model = models.assemble(self.recipe.model_name, fields, self.weights_of(checkpoint), source, "cpu").eval()
        mark_untrained(model, self.recipe.loss.reconstruction)
        if checkpoint.origin.data is not None:  # the data that it was trained on, which may not be today's
            described = checkpoint.origin.data["train"]
            model.trained = training_of(self.recipe, described["classes"], described["shape"])
        return model

    def checkpoint(self, which: Literal["best", "last"] = "best") -> Checkpoint:
        """The checkpoint whose weights the recipe keeps, or the last."""
        found = self.best_checkpoint() if which == "best" else None
        found = found or checkpoints.newest(self.checkpoints)
        if found is None:
            broken = checkpoints.steps(self.checkpoints)
            state = "no checkpoint that is whole" if broken else "no checkpoint yet"
            raise ValueError(f"{self.folder} has {state}; go on with `torchcaps train --resume --out {self.folder}`")
        if found.origin.recipe not in (None, self.hash()):
            raise ValueError(self.describe_stranger(found.step, found.origin.recipe))
        return found

    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint on validation examples; ``None`` where the last weights are kept."""
        return checkpoints.best(self.checkpoints) if self.recipe.weights == "best" else None

    def describe_stranger(self, step: int, recipe: str | None) -> str:
        """Say that a checkpoint is of another run."""
        path, own = checkpoints.names(self.checkpoints, step)[1], self.hash()
        return (
            f"{path} is of another run: its recipe has the SHA-256 {recipe}, that of {self.folder / 'recipe.json'} has "
            f"{own}; move it away"
        )

    def weights_of(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """The weights to use of a checkpoint: the moving average if there is one."""
        prefix, tensors = "ema." if self.recipe.ema else "model.", checkpoint.tensors
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    @cached_property
    def data(self) -> RecipeData:
        """The examples of the recipe, each split loaded once."""
        if self.source is not None and self.source.recipe == self.recipe:
            return self.source
        return RecipeData(self.recipe)

    def loader(self, split: Split) -> Loader:
        """A split's examples, prepared for evaluation when asked for without a generator."""
        return self.data.loader(split)

    def examples(self, split: Split) -> Examples[Any]:
        """A split's raw examples."""
        return self.data.examples(split)

    def metrics(self) -> list[dict[str, Any]]:
        """What was written down during training, line by line; a last line that was cut off is left out."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        return [_read_line(path, number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]

    def record(self) -> dict[str, Any] | None:
        """What the run reached, once it is finished."""
        path = self.folder / "record.json"
        return read_object(path) if path.is_file() else None


def _read_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: line {number} is no JSON object; restore the file from a copy, or delete that line")
    return upgrade_metrics(found)


def find_runs(near: Path, most: int = 5) -> list[Path]:
    """Run folders beside a path and in ``runs``, those of the most similar names first."""
    places = dict.fromkeys([near.parent, near, Path("runs")])
    found = dict.fromkeys(recipe.parent for place in places for recipe in sorted(place.glob("*/recipe.json")))
    return sorted(found, key=lambda path: -SequenceMatcher(None, path.name, near.name).ratio())[:most]


def _read_recipe(found: Any, path: Path) -> AnyRecipe:
    try:
        return from_json(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
