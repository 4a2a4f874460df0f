"""Checkpoints: all that training needs to go on, as safetensors for tensors and JSON for the rest.

A checkpoint counts once its JSON is there, which is written last and has the checksum of the tensors and its own. One
that is damaged is passed over for the one before.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from torchcaps.files import encode_tensors, write_bytes

FORMAT = "torchcaps-checkpoint-1"


class DamagedError(ValueError):
    """A checkpoint is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, Tensor]


def names(folder: Path, step: int) -> tuple[Path, Path]:
    """The files of a checkpoint: tensors, and the rest."""
    return folder / f"step-{step:08d}.safetensors", folder / f"step-{step:08d}.json"


def write(folder: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint; killed at any moment, the one before is still the last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors_path, state_path = names(folder, step)
    content = encode_tensors(tensors)
    write_bytes(tensors_path, content)
    described = {"format": FORMAT, "step": step, "sha256": hashlib.sha256(content).hexdigest(), "state": dict(state)}
    write_bytes(state_path, json.dumps({**described, "checksum": _checksum(described)}, indent=1).encode())


def read(folder: Path, step: int) -> Checkpoint:
    """Read a checkpoint, and hold it to its checksums."""
    tensors_path, _ = names(folder, step)
    described = describe(folder, step)
    content = tensors_path.read_bytes() if tensors_path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise DamagedError(f"{tensors_path} is damaged: its checksum is not the one in its JSON")
    try:
        return Checkpoint(described["step"], described["state"], load(content))
    except SafetensorError as error:
        raise DamagedError(f"{tensors_path} is no safetensors file: {error}") from error


def describe(folder: Path, step: int) -> dict[str, Any]:
    """What the JSON of a checkpoint says, held to its checksum."""
    _, path = names(folder, step)
    if not path.is_file():
        raise DamagedError(f"{path} is missing; it was being written when the run ended, or somebody deleted it")
    try:
        described = json.loads(path.read_bytes())
        checksum = described.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    if checksum != _checksum(described) or described.get("format") != FORMAT or described.get("step") != step:
        raise DamagedError(f"{path} is damaged: its checksum is not its own")
    return described


def steps(folder: Path) -> list[int]:
    """The steps of which there is any file, in order."""
    found = {path.stem.removeprefix("step-") for path in folder.glob("step-*.*") if path.suffix != ".part"}
    return sorted(int(number) for number in found if number.isdigit())


def newest(folder: Path, warn: Callable[[str], object]) -> Checkpoint | None:
    """The last checkpoint that is whole; ``warn`` hears of those that are not."""
    for step in reversed(steps(folder)):
        try:
            return read(folder, step)
        except DamagedError as error:
            warn(f"{error}; falling back to the checkpoint before")
    return None


def best(folder: Path, warn: Callable[[str], object]) -> Checkpoint | None:
    """The checkpoint with the highest held-out accuracy, the earliest of equals; None without held-out examples."""
    for step in _ranked(folder):
        try:
            return read(folder, step)
        except DamagedError as error:
            warn(f"{error}; taking the next best")
    return None


def tidy(folder: Path, keep_last: int, keep_best: int) -> None:
    """Delete all but the last ones and the best on held-out examples."""
    kept = {*steps(folder)[-max(1, keep_last) :], *_ranked(folder)[:keep_best]}
    for step in steps(folder):
        if step not in kept:
            delete(folder, step)
    for half_written in folder.glob("*.part"):  # by a process that was killed
        half_written.unlink()


def delete(folder: Path, step: int) -> None:
    """The JSON first: without it the tensors do not count."""
    tensors_path, path = names(folder, step)
    path.unlink(missing_ok=True)
    tensors_path.unlink(missing_ok=True)


def _ranked(folder: Path) -> list[int]:
    """Steps at which held-out examples were evaluated, the best first."""
    accuracies: dict[int, float] = {}
    for step in steps(folder):
        try:
            accuracy = describe(folder, step)["state"].get("held_out")
        except DamagedError:
            continue
        if accuracy is not None:
            accuracies[step] = accuracy
    return sorted(accuracies, key=lambda step: (-accuracies[step], step))


def _checksum(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
