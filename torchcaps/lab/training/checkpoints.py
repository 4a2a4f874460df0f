"""Checkpoints: all that training needs to go on, as safetensors for tensors and JSON for the rest.

A checkpoint counts once its JSON is there, which is written last and has the checksum of the tensors and its own. The
JSON also says which recipe and which data the checkpoint belongs to. One that is damaged is passed over for the one
before, and kept under another name.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from torchcaps.files import UNFINISHED, encode_tensors, set_aside, sync_folder, write_bytes
from torchcaps.lab.recipes.serialization import upgrade_state

FORMAT = "torchcaps-checkpoint-1"
FAMILY = "torchcaps-checkpoint-"
SUFFIXES = (".safetensors", ".json")


class DamagedError(ValueError):
    """A checkpoint is not what was written."""


class UnknownFormatError(ValueError):
    """A checkpoint is of a format that this version does not know."""


@dataclass(frozen=True)
class CheckpointOrigin:
    """What a checkpoint was made from: the recipe's hash and the data's fingerprint; ``None`` in older checkpoints."""

    recipe: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, Tensor]
    origin: CheckpointOrigin = CheckpointOrigin()


def names(folder: Path, step: int) -> tuple[Path, Path]:
    """The files of a checkpoint: tensors, and the rest."""
    return folder / f"step-{step:08d}.safetensors", folder / f"step-{step:08d}.json"


def write(
    folder: Path,
    step: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    origin: CheckpointOrigin | None = None,
) -> None:
    """Write a checkpoint into an existing folder; killed at any moment, the one before is still the last."""
    tensors_path, state_path = names(folder, step)
    content = encode_tensors(tensors)
    write_bytes(tensors_path, content)
    described = {"format": FORMAT, "step": step, "sha256": hashlib.sha256(content).hexdigest(), "state": dict(state)}
    if origin is not None:
        described["origin"] = {"recipe": origin.recipe, "data": origin.data}
    write_bytes(state_path, json.dumps({**described, "checksum": _checksum(described)}, indent=1).encode())


def read(folder: Path, step: int) -> Checkpoint:
    """Read a checkpoint, and hold it to its checksums."""
    tensors_path, _ = names(folder, step)
    described = describe(folder, step)
    content = tensors_path.read_bytes() if tensors_path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise DamagedError(f"{tensors_path} is damaged: its checksum is not the one in its JSON")
    try:
        return Checkpoint(described["step"], described["state"], load(content), origin_of(described))
    except SafetensorError as error:
        raise DamagedError(f"{tensors_path} is no safetensors file: {error}") from error


def describe(folder: Path, step: int) -> dict[str, Any]:
    """What the JSON of a checkpoint says, held to its checksum."""
    _, path = names(folder, step)
    if not path.is_file():
        raise DamagedError(f"{path} is missing; it was being written when the run ended, or somebody deleted it")
    try:
        described = json.loads(path.read_bytes())
        checksum = described.pop("checksum", None)
    except (ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    found = described.get("format")
    if found != FORMAT and isinstance(found, str) and found.startswith(FAMILY):
        raise UnknownFormatError(
            f"{path} has the format {found!r}; this version of torchcaps reads {FORMAT!r}. Use the version that wrote "
            f"it; the file was left as it is"
        )
    if checksum != _checksum(described) or found != FORMAT or described.get("step") != step:
        raise DamagedError(f"{path} is damaged: its checksum is not its own")
    return {**described, "state": upgrade_state(described["state"])}


def origin_of(described: Mapping[str, Any]) -> CheckpointOrigin:
    """What a checkpoint's JSON says that it was made from."""
    return CheckpointOrigin(**described.get("origin", {}))


def steps(folder: Path) -> list[int]:
    """The steps of which there is any file, in order."""
    found = {path.stem.removeprefix("step-") for path in folder.glob("step-*.*") if path.suffix in SUFFIXES}
    return sorted(int(number) for number in found if number.isdigit())


def newest(folder: Path) -> Checkpoint | None:
    """The last checkpoint that is whole; nothing is changed."""
    for step in reversed(steps(folder)):
        try:
            return read(folder, step)
        except DamagedError:
            continue
    return None


def best(folder: Path) -> Checkpoint | None:
    """The checkpoint with the highest validation accuracy, the earliest of equals; None where there was no validation.

    One that is damaged or missing is an error: the next best would be another model under the best one's name.
    """
    accuracies, reached = _accuracies(folder), _reached(folder)
    if reached is None and not accuracies:
        return None
    if not accuracies or (reached is not None and max(accuracies.values()) < reached):
        raise DamagedError(
            f"{folder} lacks the checkpoint with the best validation accuracy, {reached:.2%}: it is damaged or was "
            f"deleted"
        )
    return read(folder, _rank(accuracies)[0])


def is_best_kept(folder: Path, checkpoint: Checkpoint) -> bool:
    """Whether the best checkpoint up to this one is whole: without it, training on from here loses the best model."""
    wanted = checkpoint.state.get("best")
    if wanted is None or checkpoint.state.get("val_accuracy") == wanted:
        return True
    for step, accuracy in _accuracies(folder).items():
        if step < checkpoint.step and accuracy == wanted:
            try:
                read(folder, step)
            except DamagedError:
                continue
            return True
    return False


def tidy(folder: Path, keep_last: int, keep_best: int) -> None:
    """Delete all but the last ones and the best on validation examples."""
    kept = {*steps(folder)[-max(1, keep_last) :], *_rank(_accuracies(folder))[:keep_best]}
    for step in steps(folder):
        if step not in kept:
            delete(folder, step)
    for half_written in folder.glob(f"*{UNFINISHED}"):  # by a process that was killed
        half_written.unlink(missing_ok=True)


def delete(folder: Path, step: int) -> None:
    """The JSON first: without it the tensors do not count."""
    tensors_path, path = names(folder, step)
    path.unlink(missing_ok=True)
    tensors_path.unlink(missing_ok=True)


def move_aside(folder: Path, step: int, why: str) -> list[Path]:
    """Give a checkpoint's files names that end in ``why``, so that it no longer counts; the JSON first."""
    moved = [set_aside(path, why) for path in reversed(names(folder, step)) if path.exists()]
    sync_folder(folder)
    return moved


def _rank(accuracies: Mapping[int, float]) -> list[int]:
    """Steps at which validation examples were evaluated, the best first."""
    return sorted(accuracies, key=lambda step: (-accuracies[step], step))


def _accuracies(folder: Path) -> dict[int, float]:
    """The validation accuracies of the checkpoints at which there was one."""
    found = {step: state.get("val_accuracy") for step, state in _states(folder).items()}
    return {step: accuracy for step, accuracy in found.items() if accuracy is not None}


def _reached(folder: Path) -> float | None:
    """The best accuracy that any checkpoint knows of."""
    return max((state["best"] for state in _states(folder).values() if state.get("best") is not None), default=None)


def _states(folder: Path) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for step in steps(folder):
        try:
            found[step] = describe(folder, step)["state"]
        except DamagedError:
            continue
    return found


def _checksum(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
