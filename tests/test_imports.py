"""Imports point upstream: the library never imports the laboratory, nor that the command line."""

import ast
from pathlib import Path

import pytest

import torchcaps

PACKAGE = Path(torchcaps.__file__).parent
# The modules in the order data walks through them; those on one line stand side by side and do not use each other.
LIBRARY = [
    {"kernels"},
    {"capsules", "extras", "files", "parameters", "terminal", "typed"},
    {"convolution", "squashing"},
    {"backbones", "votes"},
    {"norms"},
    {"primary", "routing"},
    {"layers", "testing"},
    {"heads", "decoders"},
    {"losses"},
    {"models"},
    {"data"},
    {"export"},
]
FLOORS = [*LIBRARY, {"lab"}, {"sklearn"}, {"cli"}, {"__main__"}]
LAB = [
    {"recipes", "tracing"},
    {"loaders"},
    {"text", "diagnosis"},
    {"training"},
    {"evaluation"},
    {"explanation"},
    {"demo"},
    {"reports"},
]


def imported(path: Path, package: str) -> set[str]:
    """The modules or packages right below ``package`` that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
            names.add(node.module.removeprefix(f"{package}.").split(".")[0])
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.startswith(f"{package}.")]
            names |= {name.removeprefix(f"{package}.").split(".")[0] for name in found}
    return names


@pytest.mark.parametrize(("package", "order"), [("torchcaps", FLOORS), ("torchcaps.lab", LAB)])
def test_imports_point_upstream(package: str, order: list[set[str]]) -> None:
    place = {name: number for number, names in enumerate(order) for name in names}
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).parts[0].removesuffix(".py")
        if name == "__init__":
            continue
        assert name in place, f"{path.relative_to(PACKAGE)}: {name} has no place in the order of {package}"
        for other in imported(path, package) & place.keys() - {name}:
            assert place[other] < place[name], f"{path.relative_to(PACKAGE)} imports {other}, which comes after {name}"


def test_references_share_no_code_with_what_they_judge() -> None:
    folder = PACKAGE / "routing" / "reference"
    for path in folder.glob("*.py"):
        lines = [
            line for line in path.read_text().splitlines() if line.startswith(("import torchcaps", "from torchcaps"))
        ]
        others = [line for line in lines if not line.startswith("from torchcaps.routing.reference.")]
        assert others in ([], ["from torchcaps.capsules import Capsules"]), path.name
