"""What earlier versions wrote, in today's words: names of fields and recipes that have changed since."""

from collections.abc import Mapping
from typing import Any

from torchcaps.models.saving import OLD_NAMES

FIELDS = {"prepare": "transforms", "look_every": "eval_every", "accumulate": "grad_accum_steps"}
FIELDS_WITHIN = {"data": {"held_out": "val_size"}, "transforms": {"standardise": "standardize"}}
RECIPE_PREFIXES = {"stage/": "comparison/"}


def upgrade_recipe(written: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's JSON object with its fields under their present names.

    >>> upgrade_recipe({"name": "stage/toys", "data": {"held_out": 5}, "look_every": 2})
    {'name': 'comparison/toys', 'data': {'val_size': 5}, 'eval_every': 2}
    """
    found = rename(written, FIELDS)
    for part, names in FIELDS_WITHIN.items():
        if isinstance(found.get(part), Mapping):
            found[part] = rename(found[part], names)
    for old, new in RECIPE_PREFIXES.items():
        if isinstance(found.get("name"), str) and found["name"].startswith(old):
            found["name"] = new + found["name"].removeprefix(old)
    if isinstance(found.get("model_name"), str):
        found["model_name"] = OLD_NAMES.get(found["model_name"], found["model_name"])
    return found


def upgrade_transforms(written: Mapping[str, Any]) -> dict[str, Any]:
    """The transforms of a recipe or a model file, with their fields under their present names."""
    return rename(written, FIELDS_WITHIN["transforms"])


def upgrade_state(written: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint."""
    return rename(written, {"held_out": "val_accuracy"})


def upgrade_metrics(written: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics."""
    return {**written, "kind": "val"} if written.get("kind") == "held_out" else written


def rename(written: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A JSON object with these keys renamed, in the order that it has."""
    return {names.get(key, key): value for key, value in written.items()}
