"""The site builds without a warning, and has what readers look for. Tutorials are run by `make docs`, not here."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from tests.test_public_surface import LIBRARY, public_names
from torchcaps.routing import ROUTINGS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_extensions"))
from docstrings import EQUATIONS  # noqa: E402
from pages import link_live_page, rewrite_links  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(out / "doctrees")]
    built = subprocess.run(
        [*command, "-D", "nb_execution_mode=off", str(ROOT / "docs"), str(out / "html")],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[-5000:]
    return out / "html"


@pytest.fixture(scope="module")
def documented(site: Path) -> set[str]:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    return {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}


def test_the_worked_example_leads_the_front_page(site: Path) -> None:
    front = (site / "index.html").read_text()
    assert "worked-example.png" in front
    assert front.index("worked-example.png") < front.index("<h2")


def test_the_front_page_links_to_the_live_page_if_it_is_there(tmp_path: Path) -> None:
    front = (ROOT / "docs" / "index.md").read_text()
    assert "demo/index.html" not in link_live_page(front, tmp_path)
    (tmp_path / "index.html").touch()
    assert "demo/index.html" in link_live_page(front, tmp_path)


@pytest.mark.parametrize("name", ROUTINGS)
def test_every_routing_has_a_page_with_a_figure(site: Path, name: str) -> None:
    page = name.replace("_", "-")
    assert f"routing-{page}.png" in (site / f"{page}.html").read_text()


def test_every_page_can_be_reached_from_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        if name not in ("README.html", "index.html") and "_build" not in name:
            assert f'href="{name}"' in front, f"{name} is not in the navigation"


def test_the_search_finds_words_and_objects(site: Path) -> None:
    index = json.loads(re.sub(r"^Search\.setIndex\(|\)$", "", (site / "searchindex.js").read_text().strip()))
    found = {*_listed(index["terms"]["squash"]), *_listed(index["titleterms"]["squash"])}
    assert {"dynamic", "api/torchcaps"} <= {index["docnames"][number] for number in found}
    assert "tutorials/3-parts-and-wholes" in index["docnames"]
    assert any(entry[4] == "em_routing" for entry in index["objects"]["torchcaps.routing"])


def _listed(found: int | list[int]) -> list[int]:
    return [found] if isinstance(found, int) else found


def test_the_reference_has_every_public_name(documented: set[str]) -> None:
    for place, module in LIBRARY.items():
        if place in ("capsules", "primary", "layers"):  # their public names are those of torchcaps itself
            continue
        for name in public_names(module):
            thing = getattr(module, name)
            if callable(thing) and getattr(thing, "__module__", "").startswith("torchcaps"):
                assert f"{module.__name__}.{name}" in documented, f"{module.__name__}.{name} is not in the reference"


def test_equations_belong_to_objects_of_the_reference(site: Path, documented: set[str]) -> None:
    assert EQUATIONS.keys() <= documented
    assert r"\operatorname{squash}(s_j)" in (site / "api" / "routing.html").read_text()


def test_names_in_the_text_lead_to_the_reference(site: Path) -> None:
    assert 'href="../api/torchcaps.html#torchcaps.ConvCapsules"' in (site / "how-to" / "own-backbone.html").read_text()


def test_links_out_of_the_documentation_lead_to_the_repository(site: Path) -> None:
    assert rewrite_links("[x](../torchcaps/heads.py)", ROOT / "docs").endswith("/blob/main/torchcaps/heads.py)")
    assert rewrite_links("[x](../CHANGELOG.md)", ROOT / "docs") == "[x](changelog.md)"
    assert rewrite_links("[x](../../README.md#faq)", ROOT / "docs" / "api") == "[x](../index.md)"
    assert rewrite_links("[x](docs/em.md#y)", ROOT) == "[x](em.md#y)"
    assert rewrite_links("f[0](x)", ROOT / "docs") == "f[0](x)"
    assert "Keep a Changelog" in (site / "changelog.html").read_text()
