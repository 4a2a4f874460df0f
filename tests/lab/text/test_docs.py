"""The page about language has the present table, and the benchmark of routing beside a language model runs."""

from pathlib import Path

import pytest

from benchmarks import text_cases
from tests.support import script

ROOT = Path(__file__).parents[3]


def test_the_table_is_the_present_one() -> None:
    shown = (ROOT / "docs" / "language.md").read_text()
    assert script("reproduction/measure_language").page(shown) == shown, (
        "run: python reproduction/measure_language.py --write"
    )


def test_the_table_of_credit_is_the_present_one() -> None:
    shown = (ROOT / "docs" / "language.md").read_text()
    assert script("reproduction/measure_credit").page(shown) == shown, "run: python reproduction/measure_credit.py"


def test_intervals() -> None:
    runs = [{"seed": seed, "val": 0.4, "correct": right, "total": 100} for seed, right in enumerate((40, 41, 42))]
    row = script("reproduction/measure_language")._row("sst5", "capsules", {"parameters": 7, "runs": runs})
    assert "| 41.0 % | 38.5–43.5 % (3 seeds) | 31.9–50.8 % |" in row  # 4.303 · 1 / √3 = 2.48


def test_the_benchmark_routes_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="needs torchcaps[text]")
    monkeypatch.setattr(text_cases, "SENTENCES", 2)
    monkeypatch.setattr(text_cases, "TOKENS", 3)
    case = text_cases.text_routing()
    ours, encoder = (make() for make in case.contenders.values())
    assert ours().pose.shape == (2, 64, 2)  # pyright: ignore
    assert [tuple(state.shape) for state in encoder()] == [(2, 3, 384)] * 7  # pyright: ignore
