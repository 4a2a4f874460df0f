"""The page about generated data: its code runs, and its figures are the measured ones."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "generated-data.md").read_text()


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure", ROOT / "scripts" / "measure_generated_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_the_pages_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/generated-data.md", "exec"), {})


def test_the_pages_figures_are_the_measured_ones() -> None:
    measure = script()
    shown = PAGE.split(measure.BEGIN)[1].split(measure.END)[0]
    assert shown == measure.table(json.loads(measure.RESULTS.read_text()))
