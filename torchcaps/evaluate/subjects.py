"""What can be evaluated: a run folder, one of its checkpoints, or a model in a file of its own."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

import torchcaps.models as models
from torchcaps.data import DataError
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss
from torchcaps.models import CapsuleNet, Model
from torchcaps.recipes import Prepare, build_loss, build_model
from torchcaps.shipped import FOLDER as SHIPPED
from torchcaps.train import Run, checkpoints

Which = Literal["best", "last"]


@dataclass(frozen=True)
class Subject:
    """A model, and what is known of it: ``run`` is there if it comes from one, ``classes`` if their names are known."""

    name: str
    model: Model
    loss: ClassificationLoss
    prepare: Prepare
    run: Run | None = None
    classes: tuple[str, ...] | None = None
    step: int = 0

    @property
    def takes(self) -> tuple[int | None, ...]:
        """The shape of one input; ``None`` where any size will do."""
        return self.model.accepts if isinstance(self.model, CapsuleNet) else self.model.image


def open_subject(path: str | Path, which: Which = "best") -> Subject:
    """The model of a run folder, of a checkpoint inside one, or of a file that ``torchcaps.models.save`` wrote;
    ``shipped`` is the one that comes with the package, unless there is such a folder here."""
    place = Path(path)
    if str(path) == "shipped" and not place.exists():
        place = SHIPPED
    if place.is_dir():
        return _of_run(Run.open(place), str(path), which=which)
    if not place.is_file():
        raise ValueError(
            f"{path}: no such run folder or model file; `torchcaps train` makes run folders, and `shipped` is the "
            "model that comes with the package"
        )
    if place.suffix != ".safetensors":
        raise ValueError(f"{path} is no run folder and no .safetensors file; give one of these")
    step = place.stem.removeprefix("step-")
    if place.parent.name == "checkpoints" and step.isdigit():
        return _of_run(Run.open(place.parent.parent), str(path), step=int(step))
    if place.name == "model.safetensors" and (place.parent / "recipe.json").is_file():
        return _of_run(Run.open(place.parent), str(path))
    return _of_file(place)


def _of_run(run: Run, name: str, which: Which = "best", step: int | None = None) -> Subject:
    if step is None:
        model = run.model(which)
    else:
        model = build_model(run.recipe)
        model.load_state_dict(run.weights_of(checkpoints.read(run.checkpoints, step)))
    steps = [int(line["step"]) for line in run.metrics() if "step" in line]
    last = step if step is not None else max(steps, default=0)
    return Subject(name, model.eval(), build_loss(run.recipe), run.recipe.prepare, run, _run_classes(run), last)


def _run_classes(run: Run) -> tuple[str, ...] | None:
    """Names come with the data, which may not be here any more."""
    try:
        return run.examples("train").classes
    except (DataError, OSError):
        return None


def _of_file(path: Path) -> Subject:
    """A model without a recipe: it decides on the class with the highest logit, and its input is taken as it is."""
    model = models.load(path).eval()
    loss = model.suited_loss() if isinstance(model, CapsuleNet) else CrossEntropyLoss()
    return Subject(str(path), model, loss, Prepare(), classes=_file_classes(path))


def _file_classes(path: Path) -> tuple[str, ...] | None:
    """The names of the classes that a file's header may have: ``classes``, a list as JSON."""
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get("classes")
        names = None if written is None else json.loads(written)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: its header does not name the classes as a JSON list: {error}") from error
    if names is not None and (not isinstance(names, list) or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"{path}: classes in its header is {names!r}; expected a JSON list of names")
    return None if names is None else tuple(names)


def with_crops(subject: Subject, crops: int | None) -> Subject:
    """The same, with predictions averaged over so many crops; as the recipe has it if ``None``."""
    if crops is None:
        return subject
    prepare = replace(subject.prepare, crops=crops)
    run = subject.run and replace(subject.run, recipe=replace(subject.run.recipe, prepare=prepare))
    return replace(subject, prepare=prepare, run=run)
