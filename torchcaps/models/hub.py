"""Models in folders, and on the Hugging Face hub: weights as safetensors, the configuration, and a card.

A folder is read as any file of a stranger is: ``model.safetensors`` alone decides what is built, its checksum, types
and sizes are checked, and nothing is pickled or run. ``config.json`` is for people and for the hub.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchcaps.extras import explain_missing
from torchcaps.models.base import Model
from torchcaps.models.card import MARK, REPOSITORY, write_card
from torchcaps.models.saving import describe_origin, load, save
from torchcaps.typed import show

try:
    from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )
except ImportError as error:
    raise ImportError(explain_missing(error, "sharing models") or str(error), name=error.name) from error

WEIGHTS = "model.safetensors"


class SharedModel(ModelHubMixin, library_name="torchcaps", repo_url=REPOSITORY):
    """A model as huggingface_hub's mixin wants it: it saves the folder, and uploads it."""

    def __init__(self, network: Model, record: Mapping[str, Any] | None, name: str) -> None:
        self.network, self.record, self.name = network, record, name

    def _save_pretrained(self, save_directory: Path) -> None:
        card = save_directory / "README.md"
        if card.is_file() and MARK in card.read_text(encoding="utf-8", errors="replace"):
            card.unlink()  # ours, of the model that was here before; the mixin keeps what is there
        save(self.network, save_directory / WEIGHTS)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        lines = [f'model = tc.models.from_pretrained("{self.name}")', "prediction = model(images).logits.argmax(-1)"]
        title = self.network.origin.name if self.network.origin else "torchcaps"
        card = write_card(self.network, title=title, load=lines, record=self.record)
        return ModelCard(card)


def save_folder(model: Model, folder: str | Path, record: Mapping[str, Any] | None = None) -> None:
    """Write a model to a folder: ``model.safetensors``, ``config.json`` and a card, ``README.md``. A card that is there
    and was not written by this stays."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder")
    SharedModel(model, record, str(folder)).save_pretrained(folder, config=describe(model))


def describe(model: Model) -> dict[str, Any]:
    """What ``config.json`` says of a model."""
    origin = describe_origin(model)
    if origin is None:
        raise ValueError(
            "this model was put together by hand, so that nobody else could make it from its name; share its code, and "
            "its weights by tc.models.save and tc.models.load_weights"
        )
    classes = {"class_names": list(model.class_names)} if model.class_names else {}
    return {"library_name": "torchcaps", "model": origin["name"], "model_config": origin["config"], **classes}


def load_folder(
    place: str | Path, *, revision: str | None = None, token: str | bool | None = None, **options: Any
) -> Model:
    """The model of a folder, or of a name on the hub; ``options`` are those of ``huggingface_hub.hf_hub_download``."""
    folder = Path(place)
    if folder.is_dir():
        if not (folder / WEIGHTS).is_file():
            raise ValueError(f"{folder} has no {WEIGHTS}; model.save_pretrained(folder) writes one")
        return load(folder / WEIGHTS).eval()
    if folder.is_file():
        raise ValueError(
            f"{folder} is a file; tc.models.load reads those, and from_pretrained takes a folder or a name"
        )
    name = str(place)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ValueError(f"{show(name)} is no folder here and no name on the hub, which is like 'owner/model'")
    with explain_hub_errors(name):
        path = hf_hub_download(name, WEIGHTS, revision=revision, token=token, **options)
    return load(path).eval()


def push_folder(
    model: Model,
    name: str,
    record: Mapping[str, Any] | None = None,
    *,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = "Upload a model of torchcaps",
) -> str:
    """Upload a model to the hub under a name; the address of the commit."""
    shared, config = SharedModel(model, record, name), describe(model)
    with explain_hub_errors(name):
        return str(shared.push_to_hub(name, config=config, private=private, token=token, commit_message=commit_message))


@contextmanager
def explain_hub_errors(name: str) -> Iterator[None]:
    """The hub's errors, in a line that says what to do."""
    try:
        yield
    except HFValidationError as error:
        raise ValueError(f"{show(name)} is no name on the hub: {error}") from error
    except (OfflineModeIsEnabled, LocalEntryNotFoundError) as error:
        raise ConnectionError(f"cannot reach the hub for {name}: {_why_offline()}") from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"the hub has no model {name}, or none that you may read; log in with `hf auth login`"
        ) from error
    except EntryNotFoundError as error:
        raise ValueError(f"{name} on the hub has no {WEIGHTS}; it was not saved by torchcaps") from error
    except HfHubHTTPError as error:
        raise ConnectionError(f"the hub refused {name}: {error}") from error
    except Exception as error:  # whatever the hub's client uses for its requests has errors of its own
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("http", "requests")):
            raise
        raise ConnectionError(f"cannot reach the hub for {name} ({error}): {_why_offline()}") from error


def _why_offline() -> str:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set; unset it, or use save_pretrained and from_pretrained with a folder"
    return "there is no network, or no such model in the cache; folders of save_pretrained need neither"
