"""What can be evaluated: a run folder, one of its checkpoints, or a model in a file of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

import torchcaps.models as models
from torchcaps.data import ArrayDataset, DataError
from torchcaps.export import load as load_onnx
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes import Transforms, build_loss, change, loss_of, make_loss, preprocessing_of
from torchcaps.lab.training import Run, checkpoints
from torchcaps.lab.training.distributed import choose_device
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss
from torchcaps.models import CapsuleNet, Model, Training
from torchcaps.models.pretrained import FOLDERS, find_folder, list_pretrained
from torchcaps.typed import suggest

Which = Literal["best", "last"]


@dataclass(frozen=True)
class LoadedModel:
    """A model, and what is known of it: ``run`` is there if it comes from one, ``classes`` if their names are known."""

    name: str
    model: Model
    loss: ClassificationLoss
    transforms: Transforms
    run: Run | None = None
    classes: tuple[str, ...] | None = None
    step: int = 0

    @property
    def takes(self) -> tuple[int | None, ...]:
        """The shape of one input; ``None`` where any size will do."""
        return getattr(self.model, "accepts", self.model.image)

    @property
    def title(self) -> str:
        """What files and pages call it: a trained model that ships by its name, a run by its recipe."""
        if self.run is None:
            return self.name
        return self.run.folder.name if self.run.folder.parent == FOLDERS else self.run.recipe.name


@dataclass(frozen=True)
class Preprocess:
    """From images as they are (0 to 1, of the size that the model was trained on) to what the model takes."""

    transforms: Transforms

    def __call__(self, images: Float[Tensor, "n channel row column"]) -> Float[Tensor, "n channel height width"]:
        numbers = torch.arange(len(images))
        dataset = ArrayDataset("images", "own", (), images, torch.zeros_like(numbers))
        return ImageLoader(dataset, self.transforms).batch(numbers).inputs[0]


def open_model(path: str | Path, which: Which = "best", device: str = "cpu") -> LoadedModel:
    """The model of a run folder, of a checkpoint inside one, of a file that ``torchcaps.models.save`` wrote, or of an
    ONNX file of ``torchcaps.export``; or one of those that come with the package, by its name or as ``shipped``, unless
    there is such a folder here. The model is put on the device; an empty name is a GPU if there is one."""
    place = choose_device(device)  # before anything is read
    subject = _open(path, which)
    subject.model.to(place)
    return subject


def _open(path: str | Path, which: Which) -> LoadedModel:
    place = Path(path)
    if not place.exists():
        place = find_folder(str(path)) or place
    if place.is_dir():
        return _of_run(Run.open(place), str(path), which=which)
    if not place.is_file():
        remedy = "`torchcaps train` makes run folders, and `torchcaps models` names the pretrained models"
        remedy = suggest(str(path), ["shipped", *list_pretrained()], remedy)
        raise ValueError(f"{path}: no such run folder or model file, and no pretrained model of this name; {remedy}")
    if place.suffix == ".onnx":
        return _as_trained(load_onnx(place), str(path))
    if place.suffix != ".safetensors":
        raise ValueError(f"{path} is no run folder and no .safetensors or .onnx file; give one of these")
    step = place.stem.removeprefix("step-")
    if place.parent.name == "checkpoints" and step.isdigit():
        return _of_run(Run.open(place.parent.parent), str(path), step=int(step))
    if place.name == "model.safetensors" and (place.parent / "recipe.json").is_file():
        return _of_run(Run.open(place.parent), str(path))
    return _as_trained(models.load(place).eval(), str(path))


def _of_run(run: Run, name: str, which: Which = "best", step: int | None = None) -> LoadedModel:
    run = _without_new_folders(run)
    model = run.model(which) if step is None else run.model_of(checkpoints.read(run.checkpoints, step))
    _check_recipe(model, run)
    steps = [int(line["step"]) for line in run.metrics() if "step" in line]
    last = step if step is not None else max(steps, default=0)
    model.trained = model.trained or _training_of_run(run)
    model.record = run.record() or _begin_record(run)
    classes = None if model.trained is None else model.trained.class_names
    if not run.recipe.is_text:
        model.preprocess = Preprocess(run.recipe.transforms)
    return LoadedModel(name, model, build_loss(run.recipe), run.recipe.transforms, run, classes, last)


def _begin_record(run: Run) -> dict[str, Any]:
    """What is known of a run that is not finished."""
    data = {"train": run.recipe.data.train, "test": run.recipe.data.test}
    overrides = list(run.overrides)
    return {
        "recipe": run.recipe.name,
        "scale": run.scale,
        "overrides": overrides,
        "seed": run.recipe.seed,
        "data": data,
    }


def _without_new_folders(run: Run) -> Run:
    """A recipe, which may be a stranger's, makes no folders: hidden states then go to the user's cache directory."""
    folder = run.recipe.text.folder
    if not folder or Path(folder).expanduser().is_dir():
        return run
    return replace(run, recipe=change(run.recipe, {"text.folder": ""}))


def _check_recipe(model: Model, run: Run) -> None:
    """That the recipe of the folder prepares images as the model was trained with, and names the same classes."""
    if model.trained is None:
        return
    source = str(run.folder / "model.safetensors")
    trained, written = preprocessing_of(model.trained, source), run.recipe.transforms
    if trained != written:
        raise ValueError(f"{run.folder}: recipe.json says {written}, but the model was trained with {trained}")
    names = run.recipe.text.classes
    if names and names != model.trained.class_names:
        raise ValueError(f"{run.folder}: {describe_difference(model.trained.class_names, names, 'recipe.json')}")


def describe_difference(ours: Sequence[str], theirs: Sequence[str], whose: str) -> str:
    """In what the classes of a model and those of data differ, by name."""
    lacking = [name for name in ours if name not in theirs]
    unknown = [name for name in theirs if name not in ours]
    said = [f"the model knows no {_some(unknown)}"] if unknown else []
    said += [f"{whose} has no {_some(lacking)}"] if lacking else []
    order = f"the order is {_some(theirs)} in place of {_some(ours)}"
    return f"the classes of {whose} are not those of the model: {', and '.join(said) or order}"


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")


def _training_of_run(run: Run) -> Training | None:
    """For runs of older versions, whose models do not name their classes: what the data say, if they are still here."""
    try:
        return run.data.training()
    except (DataError, OSError):
        return None


def _as_trained(model: Model, path: str) -> LoadedModel:
    """A model without a run: it is used as its file says, and else with its input as it is and the usual loss."""
    trained, transforms, loss = model.trained, Transforms(), None
    if trained is not None:
        transforms, written = preprocessing_of(trained, path), loss_of(trained, path)
        loss = None if written is None else make_loss(written)
    if loss is None:
        loss = model.suited_loss() if isinstance(model, CapsuleNet) else CrossEntropyLoss()
    model.preprocess = Preprocess(transforms)
    return LoadedModel(path, model, loss, transforms, classes=model.class_names)


def with_crops(subject: LoadedModel, crops: int | None) -> LoadedModel:
    """The same, with predictions averaged over so many crops; as the recipe has it if ``None``."""
    if crops is None:
        return subject
    transforms = replace(subject.transforms, crops=crops)
    run = subject.run and replace(subject.run, recipe=replace(subject.run.recipe, transforms=transforms))
    return replace(subject, transforms=transforms, run=run)
