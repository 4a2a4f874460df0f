"""Trained models that come with the package, each in a folder of its name: a run folder with a recipe, a record and
weights, no more; and its card, ``README.md``.

``shipped.json`` names the record among the results; the weights are stored as float16 and used as float32.
"""

from pathlib import Path
from typing import Any

from torchcaps.files import read_object
from torchcaps.models.base import Model
from torchcaps.models.registry import MODELS, configure
from torchcaps.models.saving import Contents, build, read
from torchcaps.typed import show, suggest

FOLDERS = Path(__file__).parent
FOLDER = FOLDERS / "quickstart-small"
"""The one that ``torchcaps predict shipped`` and the like mean."""
WEIGHTS = "model.safetensors"


def list_pretrained() -> list[str]:
    """The names of all trained models that ship."""
    return sorted(path.parent.name for path in FOLDERS.glob(f"*/{WEIGHTS}"))


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
            raise ValueError(f"the pretrained {name} has {different}; leave these out, or create the model untrained")
        return name
    if name not in MODELS:
        raise ValueError(f"no pretrained model {show(name)}; {suggest(name, known)} (tc.models.list(pretrained=True))")
    wanted, near = configure(name, **overrides), []
    for candidate in known:
        contents = read(FOLDERS / candidate / WEIGHTS)
        if contents.origin is None or contents.origin["name"] != name:
            continue
        different = _differ(contents, wanted)
        if not different:
            return candidate
        near.append(f"{candidate!r} has {different}")
    there = "; ".join(near) or f"there are {', '.join(known)}"
    raise ValueError(f"no pretrained weights for {name} of this configuration: {there}")


def _fields(contents: Contents) -> dict[str, Any]:
    assert contents.origin is not None
    return {key: tuple(value) if isinstance(value, list) else value for key, value in contents.origin["config"].items()}


def _differ(contents: Contents, wanted: Any) -> str:
    """The fields of a stored configuration that are not as wanted."""
    stored = _fields(contents)
    return ", ".join(
        f"{key}={value!r} (not {getattr(wanted, key)!r})"
        for key, value in stored.items()
        if getattr(wanted, key) != value
    )
