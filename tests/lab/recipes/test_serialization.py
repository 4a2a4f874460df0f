"""Recipes as files: what is written is read back, also where an older version wrote it."""

import json
from typing import Any

import pytest

from torchcaps.lab import recipes
from torchcaps.lab.recipes.serialization import FIELDS, FIELDS_WITHIN, LATER_IN_MODELS, from_json, to_json
from torchcaps.models.assembling import OLD_FIELDS

RENAMED = [*FIELDS.items(), *OLD_FIELDS.items(), *(pair for names in FIELDS_WITHIN.values() for pair in names.items())]


def age(written: Any, old: str, new: str) -> Any:
    """A recipe's JSON with a field under the name that older versions gave it."""
    if not isinstance(written, dict):
        return written
    return {old if name == new else name: age(value, old, new) for name, value in written.items()}


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_recipes_of_older_versions_are_read(old: str, new: str) -> None:
    aged = 0
    for name in recipes.RECIPES:
        recipe = recipes.get(name, "laptop")
        written = age(to_json(recipe), old, new)
        assert from_json(json.loads(json.dumps(written))) == recipe
        aged += written != to_json(recipe)
    assert aged


def test_recipes_from_before_a_model_had_a_field_are_read() -> None:
    seen = set()
    for name in recipes.RECIPES:
        recipe = recipes.get(name, "laptop")
        kind, written = type(recipe.model).__name__, to_json(recipe)
        later = LATER_IN_MODELS.get(kind, {})
        if any(getattr(recipe.model, field) != value for field, value in later.items()):
            continue
        for field in later:
            del written["model"][field]
            seen.add((kind, field))
        assert from_json(json.loads(json.dumps(written))) == recipe
    assert {(kind, field) for kind, fields in LATER_IN_MODELS.items() for field in fields} == seen
