"""What a run was made from, short enough for every checkpoint: a hash of the recipe and a fingerprint of the data."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.base import Dataset, Examples, choose_evenly
from torchcaps.lab.training.examples import RecipeData

SAMPLED = 256  # examples of a split whose content is hashed, evenly over it
SHOWN = 12  # letters of a hash, names of classes in a message


def hash_recipe(written: Mapping[str, Any]) -> str:
    """The SHA-256 of a recipe as its JSON has it."""
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def fingerprint(data: RecipeData) -> dict[str, Any]:
    """Of each split: how many examples, which classes, and a hash of names, sizes and labels of all examples and the
    content of some hundred. It takes well under a second; a single changed pixel may escape it, a file may not."""
    return {split: _describe(data.examples(split)) for split in data.splits}


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, both values named."""
    splits = [*before, *(name for name in now if name not in before)]
    return [said for split in splits for said in _compare_split(split, before.get(split), now.get(split))]


def _compare_split(split: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    if before is None or now is None:
        return [f"{split} examples: {'none then, some now' if before is None else 'some then, none now'}"]
    if before["size"] != now["size"]:
        return [f"{split} examples: {before['size']:,} then, {now['size']:,} now"]
    if before["classes"] != now["classes"]:
        return [f"classes: {_names(before['classes'])} then, {_names(now['classes'])} now"]
    if before["shape"] != now["shape"]:
        return [f"shape of the {split} examples: {before['shape']} then, {now['shape']} now"]
    if before["sha256"] != now["sha256"]:
        one, other = before["sha256"][:SHOWN], now["sha256"][:SHOWN]
        return [f"content of the {split} examples: SHA-256 {one}… then, {other}… now"]
    return []


def _names(classes: list[str]) -> str:
    return ", ".join(classes[:SHOWN]) + (f", … ({len(classes)} in all)" if len(classes) > SHOWN else "")


def _describe(examples: Examples[Any]) -> dict[str, Any]:
    shape = list(examples.batch(torch.arange(1)).image.shape[1:]) if isinstance(examples, Dataset) else None
    return {"size": len(examples), "classes": list(examples.classes), "shape": shape, "sha256": _hash(examples)}


def _hash(examples: Examples[Any]) -> str:
    digest = hashlib.sha256()
    base: Any = examples
    while isinstance(getattr(base, "dataset", None), Examples):
        base = base.dataset
    for path in map(Path, getattr(base, "paths", ())):
        listed = f"{path.parent.name}/{path.name} {path.stat().st_size}\n"
        digest.update(listed.encode("utf-8", "replace"))
    for sentence in getattr(base, "sentences", ()):
        digest.update(sentence.encode("utf-8", "replace") + b"\n")
    _add(digest, getattr(base, "labels", None))
    for chunk in choose_evenly(SAMPLED, len(examples)).split(64):
        for part in examples.batch(chunk):
            _add(digest, part)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().numpy().tobytes())
