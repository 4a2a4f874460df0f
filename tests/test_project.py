"""The files around the code agree with each other: versions are promised where they are tested, and pinned once."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def find(pattern: str, file: str) -> list[str]:
    return re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)


def minor(version: str) -> int:
    return int(version.removeprefix("3."))


def test_the_promised_pythons_are_those_of_the_workflow() -> None:
    classifiers = "\n".join(PROJECT["classifiers"])
    promised = sorted(map(minor, re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)))
    tested = sorted(map(minor, find(r'- python: "(3\.\d+)"', ".github/workflows/tests.yml")))
    assert [promised[0], promised[-1]] == [tested[0], tested[-1]]
    assert PROJECT["requires-python"] == f">=3.{promised[0]}"


def test_the_version_has_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert not find(r"^version:", "CITATION.cff")


def test_make_and_pre_commit_use_the_same_ruff() -> None:
    assert find(r"^ruff==(.+)$", "constraints.txt") == find(
        r"ruff-pre-commit\n +rev: v(.+)$", ".pre-commit-config.yaml"
    )


@pytest.mark.parametrize(
    "target", ["run", "test", "lint", "format", "docs", "links", "bench", "coverage", "dist", "clean"]
)
def test_make_help_describes_every_target(target: str) -> None:
    assert find(rf"^{target}:.*## \w", "Makefile")
