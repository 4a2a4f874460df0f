"""Models in files: safetensors with the model's name and configuration in the header. Nothing is pickled."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from torchcaps.files import encode_tensors, write_bytes
from torchcaps.models.base import Model, Origin
from torchcaps.models.registry import create

FORMAT = "torchcaps-model-1"
SHOWN = 4  # names of tensors in a message


def save(model: nn.Module, path: str | Path) -> None:
    """Write a model's weights to a file, and the configuration to make it again if it came from the registry."""
    metadata = {"format": FORMAT, "model": json.dumps(_origin(model), sort_keys=True)}
    write_bytes(Path(path), encode_tensors(model.state_dict(), metadata))


def load(path: str | Path, device: str = "cpu") -> Model:
    """The model of a file, made by its configuration and with its weights."""
    origin, state = read(path, device)
    if origin is None:
        raise ValueError(
            f"{path} holds weights of a model that was put together by hand; make the model the same way and call "
            f"load_weights(model, path)"
        )
    model = create(origin["name"], **_with_tuples(origin["config"])).to(device)
    _fill(model, state, path)
    return model


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Put the weights of a file into a model that has exactly these weights."""
    device = str(next(model.parameters()).device)
    _, state = read(path, device)
    _fill(model, state, path)


def read(path: str | Path, device: str = "cpu") -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """What a file holds: where the model comes from (``None``: put together by hand), and its weights."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} has the format {metadata.get('format')!r} in its header; expected {FORMAT!r}")
    return json.loads(metadata["model"]), state


def _origin(model: nn.Module) -> dict[str, Any] | None:
    origin = getattr(model, "origin", None)
    if not isinstance(origin, Origin):
        return None
    config = {field.name: getattr(origin.config, field.name) for field in dataclasses.fields(origin.config)}
    try:
        json.dumps(config)
    except TypeError:  # an override that is a module: its configuration cannot be written down
        return None
    return {"name": origin.name, "config": config}


def _with_tuples(config: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where configurations have tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}


def _fill(model: nn.Module, state: dict[str, Tensor], source: str | Path) -> None:
    own = model.state_dict()
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    differing = [
        f"{name} {tuple(state[name].shape)} in place of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    problems = [
        f"{len(names)} {what}: {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
        for what, names in (
            ("tensors that the model has are missing", missing),
            ("tensors that the model does not have", unexpected),
            ("tensors of another shape", differing),
        )
        if names
    ]
    if problems:
        raise ValueError(f"{source} does not fit this {type(model).__name__}; {'; '.join(problems)}")
    model.load_state_dict(state)
