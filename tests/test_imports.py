"""Imports point upstream: each room may use those before it, never those after."""

import ast
from pathlib import Path

import torchcaps

PACKAGE = Path(torchcaps.__file__).parent
# The rooms in the order data walks through them; those on one line stand side by side and do not use each other.
ROOMS = [
    {"capsules", "extras", "files", "parameters", "shipped", "terminal", "typed"},
    {"backbones", "primary", "votes"},
    {"routing"},
    {"layers"},
    {"heads", "decoders"},
    {"losses"},
    {"models"},
    {"data"},
    {"recipes"},
    {"feeds"},
    {"text"},
    {"train"},
    {"evaluate"},
    {"explain"},
    {"report"},
    {"lab"},
    {"demo"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
PLACE = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}


def imported_rooms(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchcaps"):
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("torchcaps.")}
    return names & PLACE.keys()


def test_every_module_has_a_room() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    found -= {"__init__", "__pycache__"}
    assert found <= PLACE.keys(), f"rooms without a place: {found - PLACE.keys()}"


def test_imports_point_upstream() -> None:
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in imported_rooms(path) - {room}:
            assert PLACE[other] < PLACE[room], f"{path.relative_to(PACKAGE)} imports {other}, which comes after {room}"


def test_references_share_no_code_with_what_they_judge() -> None:
    source = (PACKAGE / "routing" / "reference.py").read_text()
    imports = [line for line in source.splitlines() if line.startswith(("import torchcaps", "from torchcaps"))]
    assert imports == ["from torchcaps.capsules import Capsules"]
