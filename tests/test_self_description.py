"""Nobody outside ``routing/`` asks for an algorithm by its name or class: its attributes say what there is to know."""

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchcaps as tc
from tests.support import ROOT
from torchcaps.routing import ROUTINGS

NAMES = {*ROUTINGS, *(kind.title for kind in ROUTINGS.values())}
CLASSES = {kind.__name__ for kind in ROUTINGS.values()}
FOLDERS = ("torchcaps", "benchmarks", "reproduction", "scripts")  # examples choose a routing, as users do
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "routing" not in path.relative_to(ROOT).parts
]


def constants(*nodes: ast.AST) -> set[object]:
    """The texts that are there as they are, or in a tuple, list or set."""
    found: set[object] = set()
    for node in nodes:
        if isinstance(node, ast.Constant):
            found.add(node.value)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            found |= constants(*node.elts)
    return found


def questions(tree: ast.AST) -> Iterator[str]:
    """Comparisons with a routing's name, tables of routings by name, and the classes of routings."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare) and constants(node.left, *node.comparators) & NAMES:
            yield f"line {line} compares with the name of a routing"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr in ("endswith", "startswith", "removesuffix", "removeprefix")
            if asks and constants(*node.args) & NAMES:
                yield f"line {line} asks for the name of a routing"
        if isinstance(node, ast.Dict) and len(constants(*filter(None, node.keys)) & NAMES) > 2:
            yield f"line {line} has a table of routings"
        if isinstance(node, ast.Name) and node.id in CLASSES:
            yield f"line {line} names the class {node.id}"
        if isinstance(node, ast.Attribute) and node.attr in CLASSES:
            yield f"line {line} names the class {node.attr}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_asks_for_a_routing_by_name_or_class(path: Path) -> None:
    assert list(questions(ast.parse(path.read_text()))) == []


def test_no_function_hides_a_builtin() -> None:
    for path in (ROOT / "torchcaps").rglob("*.py"):
        functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        assert not set(functions) & set(dir(builtins)), path


@pytest.mark.parametrize("name", tc.models.list())
def test_every_model_says_what_it_is_at_the_smallest_scale(name: str) -> None:
    smallest = tc.models.entry(name).smallest
    assert smallest
    assert tc.models.configure(name, **smallest) != tc.models.entry(name).config


@pytest.mark.parametrize(
    "code",
    [
        'head = "linear" if routing == "inverted_attention" else "score"',
        'couples = "fm" not in routings',
        'agrees = names.endswith("fm")',
        "once = isinstance(layer.routing, FMAgreement)",
        "once = isinstance(layer.routing, tc.routing.FMAgreement)",
        'titles = {"em": "EM", "fm": "FM", "dynamic": "dynamic"}',
    ],
)
def test_what_was_there_once_would_be_found(code: str) -> None:
    assert list(questions(ast.parse(code)))


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
