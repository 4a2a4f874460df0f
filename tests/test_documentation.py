"""The documentation holds: its code runs, its links lead somewhere."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that headings of a page get on the web: lower case, hyphens for spaces, no punctuation."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_are_there():
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/README.md",
        "docs/deviations.md",
        "docs/index.md",
    } <= names


@every_page
def test_code_runs(page: Path, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, as a reader would run them."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    text = page.read_text()
    namespace: dict[str, object] = {"__name__": "documentation"}
    for block in PYTHON.finditer(text):
        # Empty lines in front, so that a traceback gives the line in the page.
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(code, str(page), "exec"), namespace)


@every_page
def test_links_lead_somewhere(page: Path):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        assert there.is_relative_to(ROOT), f"{page.name} links to {target}, outside of the project"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}; no such heading"


def test_every_page_is_in_an_index():
    """docs/README.md links to every page beside it, and to the index.md of every folder with pages."""
    linked = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    for page in pages - {"README.md", "index.md"}:
        folder, _, _ = page.rpartition("/")
        wanted = f"{folder}/index.md" if folder else page
        assert wanted in linked, f"docs/README.md does not mention {wanted}"


def test_the_picture_of_the_readme_is_small():
    assert (ROOT / "docs" / "images" / "worked-example.png").stat().st_size < 300_000
