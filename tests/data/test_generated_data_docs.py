"""The page about generated data: its code runs, and its figures are the measured ones."""

import json
import re
from pathlib import Path

import pytest

from tests.support import script

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "generated-data.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_the_pages_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/generated-data.md", "exec"), {})


def test_the_pages_figures_are_the_measured_ones() -> None:
    measure = script("benchmarks/measure_generated_data")
    shown = PAGE.split(measure.BEGIN)[1].split(measure.END)[0]
    assert shown == measure.table(json.loads(measure.RESULTS.read_text()))
