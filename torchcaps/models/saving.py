"""Models in files: safetensors with the model's name and configuration in the header. Nothing is pickled.

Metadata of the header, all of it text: ``format``; ``model``, the name and configuration as JSON; ``sha256`` of the
tensors; ``input_shape``; and of a trained model ``classes``, ``image_shape``, ``preprocessing`` and ``loss`` as JSON.
Other programs may add texts of their own under other names.
Files of the first format have no checksum and none of the rest; they are read all the same.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode_tensors
from torch import Tensor, nn

from torchcaps.files import encode_tensors, write_bytes
from torchcaps.models.assembling import assemble, fill, read_config, upgrade_config
from torchcaps.models.base import Model, Origin, Training, mark_untrained
from torchcaps.terminal import printable
from torchcaps.typed import show

FORMAT = "torchcaps-model-2"
OLD_FORMAT = "torchcaps-model-1"
OLD_NAMES = {"stage": "comparison", "stage_smallnorb": "comparison_smallnorb"}  # of models in older files
TYPES = ("BOOL", "F16", "BF16", "F32", "F64", "I64")
KEYS = ("format", "model", "sha256", "input_shape", "classes", "image_shape", "preprocessing", "loss")
MOST_CLASSES, LONGEST_NAME = 100_000, 1000


@dataclass(frozen=True)
class Contents:
    """What a model file holds. ``origin`` is ``None`` for a model put together by hand, ``sha256`` in old files."""

    origin: Mapping[str, Any] | None
    state: dict[str, Tensor]
    sha256: str | None
    input_shape: tuple[int, ...] | None
    trained: Training | None
    extra: Mapping[str, str] = field(default_factory=dict)


def save(
    model: nn.Module,
    path: str | Path,
    trained: Training | None = None,
    *,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Write a model's weights to a file, and the configuration to make it again if it came from the registry.

    Args:
        model: the model.
        path: the file, of the format safetensors.
        trained: names of its classes and its preprocessing; what the model itself knows of them if left out.
        extra: further texts for the header, by names that the format itself does not use.
    """
    if taken := sorted(set(extra or {}) & set(KEYS)):
        raise ValueError(f"extra has {taken[0]!r}, which is a name of the format; choose another one")
    header = {"format": FORMAT} | describe(model, trained) | dict(extra or {})
    write_bytes(Path(path), encode_tensors(model.state_dict(), header))


def describe(model: nn.Module, trained: Training | None = None) -> dict[str, str]:
    """What a file says of a model besides its weights, as texts."""
    trained = trained or getattr(model, "trained", None)
    image = getattr(model, "image", None)
    metadata = {"model": _dump(describe_origin(model)), "sha256": checksum(model.state_dict())}
    if image is not None:
        metadata["input_shape"] = _dump(list(image))
    if trained is not None:
        metadata |= {
            "classes": _dump(list(trained.class_names)),
            "image_shape": _dump(trained.image_shape),
            "preprocessing": _dump(dict(trained.preprocessing)),
            "loss": _dump(None if trained.loss is None else dict(trained.loss)),
        }
    return metadata


def load(path: str | Path, device: str = "cpu") -> Model:
    """The model of a file, made by its configuration and with its weights; the file may come from a stranger.

    Args:
        path: a file that ``save`` wrote.
        device: where the model shall be.

    Returns:
        The model.

    Example:
        >>> import tempfile
        >>> from torchcaps.models.registry import create
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(create("sabour2017_mnist", stem_channels=2, primary_caps=1, decoder=False), f"{folder}/model")
        ...     load(f"{folder}/model").image
        (1, 28, 28)
    """
    return build(read(path), path, device)


def build(found: Contents, path: str | Path, device: str = "cpu") -> Model:
    """The model of a file that was read; ``path`` is for messages."""
    if found.origin is None:
        raise ValueError(
            f"{path} holds weights of a model that was put together by hand; make the model the same way and call "
            f"load_weights(model, path)"
        )
    name = found.origin["name"]
    fields = read_config(name, found.origin["config"], str(path))
    model = assemble(name, fields, found.state, str(path), device)
    if found.input_shape is not None and tuple(model.image) != found.input_shape:
        raise ValueError(
            f"{path}: input_shape is {found.input_shape}, but its configuration is for inputs of {model.image}"
        )
    classes = getattr(model.origin.config if model.origin else None, "classes", None)
    if found.trained is not None and classes is not None and len(found.trained.class_names) != classes:
        raise ValueError(f"{path}: {len(found.trained.class_names)} names for {classes} classes; expected one for each")
    model.trained = found.trained
    if found.trained is not None and found.trained.loss is not None:
        mark_untrained(model, found.trained.loss.get("reconstruction", 0.0))
    return model


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Put the weights of a file into a model that has exactly these weights.

    Args:
        model: the model.
        path: a file that ``save`` wrote.
    """
    fill(model, read(path).state, str(path), str(next(model.parameters()).device))


def read(path: str | Path) -> Contents:
    """What a file holds, held to its checksum."""
    content = Path(path).read_bytes()
    metadata = _read_metadata(content, path)
    version = metadata.get("format")
    if version not in (FORMAT, OLD_FORMAT):
        raise ValueError(
            f"{path} has the format {show(version)} in its header; expected {FORMAT!r} or {OLD_FORMAT!r}, as "
            "torchcaps.models.save writes it"
        )
    try:
        state = decode_tensors(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from error
    if version == FORMAT and metadata.get("sha256") != checksum(state):
        raise ValueError(
            f"{path} is damaged: the SHA-256 of its tensors is {checksum(state)}, and its header says "
            f"{show(metadata.get('sha256'))}; get the file again"
        )
    return Contents(
        origin=_read_origin(metadata, path),
        state=state,
        sha256=metadata.get("sha256"),
        input_shape=read_shape("input_shape", metadata, path, 1 << 20),
        trained=read_training(metadata, path),
        extra={name: text for name, text in metadata.items() if name not in KEYS},
    )


def checksum(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors: their names, types, shapes and bytes.

    Args:
        state: tensors by name.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> checksum({"weight": torch.zeros(2)})[:8]
        '0b15b00b'
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read_metadata(content: bytes, path: str | Path) -> dict[str, str]:
    """The header's metadata; types of numbers that no model has are refused before anything is read."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError(f"{path} is no safetensors file: it has {len(content):,} bytes, fewer than its header says")
    header = _parse(content[8 : 8 + length], f"{path} is no safetensors file: its header")
    if not isinstance(header, dict):
        raise ValueError(f"{path} is no safetensors file: its header is {show(header)}, not an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{path}: the metadata of its header is not an object of texts")
    for name, described in header.items():
        kind = described.get("dtype") if isinstance(described, dict) else None
        if kind not in TYPES:
            raise ValueError(f"{path}: the tensor {show(name)} is of type {show(kind)}; expected {', '.join(TYPES)}")
    return metadata


def _read_origin(metadata: Mapping[str, str], path: str | Path) -> Mapping[str, Any] | None:
    origin = _parse(metadata.get("model", ""), f"{path}: the model of its header")
    if origin is None:
        return None
    if not isinstance(origin, dict) or not isinstance(origin.get("name"), str) or "config" not in origin:
        raise ValueError(f"{path}: the model of its header is {show(origin)}; expected its name and config")
    return {**origin, "name": OLD_NAMES.get(origin["name"], origin["name"]), "config": upgrade_config(origin["config"])}


def read_shape(key: str, metadata: Mapping[str, str], path: object, most: int) -> tuple[int, ...] | None:
    """A shape in the metadata of a file, none of whose sizes is above ``most``."""
    shape = _parse(metadata.get(key, "null"), f"{path}: the {key} of its header")
    if shape is None:
        return None
    if not isinstance(shape, list) or not all(type(size) is int and 0 < size <= most for size in shape):
        raise ValueError(f"{path}: {key} is {show(shape)}; expected a list of sizes up to {most:,}")
    return tuple(shape)


def read_training(metadata: Mapping[str, str], path: object) -> Training | None:
    """What the metadata of a file say of the training of its model."""
    if "classes" not in metadata:
        return None
    names = _parse(metadata["classes"], f"{path}: the classes of its header")
    if not isinstance(names, list) or not all(
        isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names
    ):
        raise ValueError(f"{path}: classes in its header is {show(names)}; expected a JSON list of names")
    if len(names) > MOST_CLASSES or len(set(names)) != len(names):
        raise ValueError(f"{path}: {len(names):,} classes in its header, some of the same name, or too many")
    names = [printable(name).replace("\n", "\\n") for name in names]
    options: dict[str, Any] = {}
    for key, default in (("preprocessing", "{}"), ("loss", "null")):
        options[key] = _parse(metadata.get(key, default), f"{path}: the {key} of its header")
        if not isinstance(options[key], dict) and (default == "{}" or options[key] is not None):
            raise ValueError(f"{path}: {key} in its header is {show(options[key])}; expected an object")
    return Training(tuple(names), read_shape("image_shape", metadata, path, 1 << 13), **options)


def _parse(text: str | bytes, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place} is no JSON: {error}") from error
    except RecursionError:
        raise ValueError(f"{place} is nested too deeply; no file of torchcaps is") from None


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def describe_origin(model: nn.Module) -> dict[str, Any] | None:
    """The name and configuration of a model that the registry made, as JSON takes them; ``None`` of any other."""
    origin = getattr(model, "origin", None)
    if not isinstance(origin, Origin):
        return None
    config = {field.name: getattr(origin.config, field.name) for field in dataclasses.fields(origin.config)}
    try:
        json.dumps(config)
    except TypeError:  # an override that is a module: its configuration cannot be written down
        return None
    return {"name": origin.name, "config": config}
