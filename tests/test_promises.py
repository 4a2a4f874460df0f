"""Every test that the page of promises names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_of_a_promise_exists(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"no {file}::{name}"


def test_every_promise_names_a_test() -> None:
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| file"))
    ]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+` \|$", row)] == []
    assert "docs/promises.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
