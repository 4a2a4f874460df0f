"""The page about recipes says what there is: its table is the present one and its example runs."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "recipes.md"


def test_the_table_is_the_present_one():
    page = PAGE.read_text(encoding="utf-8")
    written = runpy.run_path(str(ROOT / "scripts" / "write_recipe_table.py"))["written"]
    assert written(page) == page, "run: python scripts/write_recipe_table.py"


def test_the_example_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
