"""Trained models that come with the package, each in a folder of its name: a run folder with a recipe, a record and
weights, no more; and its card, ``README.md``.

``shipped.json`` names the record among the results; the weights are stored as float16 and used as float32.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.files import read_object
from torchcaps.models.base import Model
from torchcaps.models.registry import MODELS, configure
from torchcaps.models.saving import Contents, build, read
from torchcaps.routing import resolve
from torchcaps.typed import show, suggest

FOLDERS = Path(__file__).parent
FOLDER = FOLDERS / "quickstart-small"
"""The one that ``torchcaps predict shipped`` and the like mean."""
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class TrainedRow:
    """A trained model's line of the listing.

    Args:
        name: its name.
        model: the name of its network.
        routing: what its routing is called.
        parameters: its learned numbers.
        data: what it was tested on.
        metrics: the accuracy there, with its interval, as in the record.
    """

    name: str
    model: str
    routing: str
    parameters: int
    data: str
    metrics: dict[str, Any]

    @property
    def accuracy(self) -> str:
        """In percent, with the 95 % interval."""
        low, high = self.metrics["interval"]
        return f"{100 * self.metrics['accuracy']:.2f} % ({100 * low:.2f}–{100 * high:.2f})"


def list_pretrained() -> list[str]:
    """The names of all trained models that ship."""
    return sorted(path.parent.name for path in FOLDERS.glob(f"*/{WEIGHTS}"))


def find_folder(name: str) -> Path | None:
    """The folder of a trained model by its name, or by ``shipped``; ``None`` if there is no such model."""
    if name == "shipped":
        return FOLDER
    return FOLDERS / name if name in list_pretrained() else None


def describe_pretrained(name: str) -> TrainedRow:
    """A trained model's line of the listing, from its record."""
    contents, record = read(FOLDERS / name / WEIGHTS), read_object(FOLDERS / name / "record.json")
    routing = resolve(_fields(contents)["routing"]).title
    return TrainedRow(name, record["model"], routing, record["parameters"], record["data"]["test"], record["metrics"])


def load_pretrained(name: str, overrides: dict[str, Any]) -> Model:
    """The trained model of this name, or of this model and configuration; ready for evaluation, with its record."""
    folder = FOLDERS / find(name, overrides)
    path = folder / WEIGHTS
    model = build(read(path), path).eval()
    model.record = read_object(folder / "record.json")
    return model


def find(name: str, overrides: dict[str, Any]) -> str:
    """Which of the trained models is meant: by its own name, or by a model's name and configuration."""
    known = list_pretrained()
    if name in known:
        contents = read(FOLDERS / name / WEIGHTS)
        assert contents.origin is not None
        wanted = configure(contents.origin["name"], **{**_fields(contents), **overrides})
        if different := _differ(contents, wanted):
            remedy = "leave these out, or create the model untrained"
            raise ValueError(f"the pretrained {name} has {', '.join(different)}; {remedy}")
        return name
    if name not in MODELS:
        raise ValueError(f"no pretrained model {show(name)}; {suggest(name, known)} (tc.models.list(pretrained=True))")
    wanted, near = configure(name, **overrides), {}
    for candidate in known:
        contents = read(FOLDERS / candidate / WEIGHTS)
        if contents.origin is None or contents.origin["name"] != name:
            continue
        different = _differ(contents, wanted)
        if not different:
            return candidate
        near[candidate] = different
    there = f"there are {', '.join(known)}"
    if near:  # the one that differs least
        candidate = min(near, key=lambda each: len(near[each]))
        there = f"{candidate!r} has {', '.join(near[candidate])}"
    raise ValueError(f"no pretrained weights for {name} of this configuration: {there}")


def _fields(contents: Contents) -> dict[str, Any]:
    assert contents.origin is not None
    return {key: tuple(value) if isinstance(value, list) else value for key, value in contents.origin["config"].items()}


def _differ(contents: Contents, wanted: Any) -> list[str]:
    """The fields of a stored configuration that are not as wanted."""
    return [
        f"{key}={value!r} (not {getattr(wanted, key)!r})"
        for key, value in _fields(contents).items()
        if getattr(wanted, key) != value
    ]
