"""A run folder: the recipe it was made by, its metrics, its checkpoints, its model. All that comes after training
starts from here."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import torchcaps.models as models
from torchcaps.data.base import Examples
from torchcaps.feeds import Feed
from torchcaps.files import read_json, write_json
from torchcaps.models import Model
from torchcaps.models.base import mark_untrained
from torchcaps.recipes import AnyRecipe, from_json, model_fields, to_json
from torchcaps.train import checkpoints
from torchcaps.train.checkpoints import Checkpoint
from torchcaps.train.examples import RecipeData, Split

FORMAT = 1
LAUNCH = "launch.txt"
FOLDERS = ("checkpoints", "tensorboard")
FILES = ("metrics.jsonl", "model.safetensors", "record.json", "report.html", "not-finite-*", LAUNCH, "*.part")


@dataclass(frozen=True)
class Run:
    """One run of a recipe, finished or not."""

    folder: Path
    recipe: AnyRecipe
    scale: str = ""
    overrides: tuple[str, ...] = ()

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
        found = read_json(written)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{written} is not of format {FORMAT}; it was written by another version of torchcaps")
        return cls(folder, from_json(found["recipe"]), found["scale"], tuple(found["overrides"]))

    def write(self) -> None:
        """Make the folder, and write down what the run is."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        recipe, overrides = to_json(self.recipe), list(self.overrides)
        described = {"format": FORMAT, "scale": self.scale, "overrides": overrides, "recipe": recipe}
        write_json(self.folder / "recipe.json", described)

    def delete(self) -> None:
        """Delete what a run writes; whatever else is in the folder stays."""
        (self.folder / "recipe.json").unlink()  # first: what is left then is no run
        for name in FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for pattern in FILES:
            for path in self.folder.glob(pattern):
                path.unlink()

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def model(self, which: Literal["best", "last"] = "best") -> Model:
        """The run's model, ready for evaluation: the best on held-out examples (the last if there were none), or the
        last. With a moving average of the weights, that one."""
        if which not in ("best", "last"):
            raise ValueError(f"no model {which!r}; there are 'best' and 'last'")
        finished = self.folder / "model.safetensors"
        if which == "best" and finished.is_file():
            return self._finished_model(finished)
        problems: list[str] = []
        found = checkpoints.best(self.checkpoints, problems.append) if which == "best" else None
        found = found or checkpoints.newest(self.checkpoints, problems.append)
        if found is None:
            hint = "; ".join(problems) or "go on with `torchcaps train … --resume`"
            raise ValueError(f"{self.folder} has no checkpoint yet: {hint}")
        return self.model_of(found)

    def _finished_model(self, path: Path) -> Model:
        """The model of the file, held to the record."""
        model, record = models.load(path).eval(), self.record() or {}
        recorded, found = record.get("weights_sha256"), models.checksum(model.state_dict())
        if recorded is not None and recorded != found:
            raise ValueError(
                f"{path} is not the model of this run: the SHA-256 of its weights is {found}, and record.json says "
                f"{recorded}; get the run folder again"
            )
        mark_untrained(model, self.recipe.loss.reconstruction)  # files of the first format do not say
        return model

    def model_of(self, checkpoint: Checkpoint) -> Model:
        """The model of a checkpoint, ready for evaluation."""
        source = str(checkpoints.names(self.checkpoints, checkpoint.step)[0])
        fields = model_fields(self.recipe)
        model = models.assemble(self.recipe.model_name, fields, self.weights_of(checkpoint), source, "cpu").eval()
        mark_untrained(model, self.recipe.loss.reconstruction)
        return model

    def weights_of(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """The weights to use of a checkpoint: the moving average if there is one."""
        prefix, tensors = "ema." if self.recipe.ema else "model.", checkpoint.tensors
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    def feed(self, split: Split) -> Feed:
        """A split's examples, prepared for evaluation when asked for without a generator."""
        return RecipeData(self.recipe).feed(split)

    def examples(self, split: Split) -> Examples[Any]:
        """A split's raw examples."""
        return RecipeData(self.recipe).examples(split)

    def metrics(self) -> list[dict[str, Any]]:
        """What was written down during training, line by line; a last line that was cut off is left out."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def record(self) -> dict[str, Any] | None:
        """What the run reached, once it is finished."""
        path = self.folder / "record.json"
        return read_json(path) if path.is_file() else None
