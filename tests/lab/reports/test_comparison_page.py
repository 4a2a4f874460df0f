"""Runs side by side: tests in pairs, differences of the recipes, curves over each other."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_rel

from tests.lab.evaluation.tiny_runs import tiny_run
from torchcaps.lab.evaluation.intervals import adjust_for_many, compare_pairs, compare_seeds
from torchcaps.lab.explanation.comparison import Standing
from torchcaps.lab.reports.comparison_page import Compared, curves_section, paired_section, recipes_section


def standing(name: str, right: np.ndarray, label: np.ndarray | None = None) -> Standing:
    count, bins = len(right), np.zeros(3, np.float32)
    label = np.arange(count) % 3 if label is None else label
    return Standing(
        name, "data/test", int(right.sum()), count, (0.0, 1.0), 0.1, 10, 10, 1.0, 1.0, 8, 1, bins, bins,
        np.zeros(3, np.int64), right, label,
    )  # fmt: skip


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (6, 0), (3, 9), (40, 70), (5, 5)])
def test_pairs_are_tested_exactly(only_first: int, only_second: int) -> None:
    first, second = np.ones(200, bool), np.ones(200, bool)
    second[:only_first], first[100 : 100 + only_second] = False, False
    found = compare_pairs(first, second)
    assert found[:2] == (only_first, only_second)
    differing = only_first + only_second
    expected = binomtest(only_first, differing).pvalue if differing else 1.0
    assert found.p == pytest.approx(expected, rel=1e-9)


def test_seeds_are_paired() -> None:
    first, second = {0: 0.91, 1: 0.93, 2: 0.95, 7: 0.1}, {0: 0.90, 1: 0.91, 2: 0.94, 8: 0.9}
    found = compare_seeds(first, second)
    assert found is not None
    expected = ttest_rel([0.91, 0.93, 0.95], [0.90, 0.91, 0.94]).confidence_interval(0.95)
    assert found.seeds == 3
    assert found.interval == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert compare_seeds(first, {7: 0.2}) is None


def test_many_tests_are_corrected() -> None:
    assert adjust_for_many([0.2, 0.001, 0.02]) == pytest.approx([0.2, 0.003, 0.04])


def test_differences_are_said_both_ways() -> None:
    good = np.ones(100, bool)
    bad = good.copy()
    bad[:30] = False
    real = paired_section([Compared(standing("bad", bad)), Compared(standing("<good>", good))])
    assert "The difference is larger than chance" in real
    assert (
        "<td>&lt;good&gt;</td><td>bad</td><td class=n>+30.00 points</td><td class=n>30</td><td class=n>0</td>" in real
    )
    equal = paired_section([Compared(standing("one", good)), Compared(standing("two", good))])
    assert "The difference is not larger than chance" in equal
    others = standing("other", good, np.zeros(100, np.int64))
    assert "not measured on the same examples" in paired_section([Compared(standing("one", good)), Compared(others)])


def test_recipes_and_curves_of_runs(tmp_path: Path) -> None:
    right = np.ones(40, bool)
    compared = []
    for name, changes in (
        ("a0", ()), ("a1", ("--seed", "1")), ("b0", ("--optimizer.lr", "0.5")),
        ("b1", ("--optimizer.lr", "0.5", "--seed", "1")),
    ):  # fmt: skip
        right = right.copy()
        right[: len(compared)] = False
        compared.append(Compared(standing(name, right), None, tiny_run(tmp_path / name, *changes)))
    recipes = recipes_section(compared)
    assert re.findall(r"<tr><td>([\w.]+)</td>", recipes) == ["optimizer.lr", "seed"]
    assert "<td>optimizer.lr</td><td>0.003</td><td>0.003</td><td>0.5</td><td>0.5</td>" in recipes
    assert "the same in every field" in recipes_section([compared[0], compared[0]])
    assert "Left out" in recipes_section([Compared(compared[0].standing), compared[1]])
    curves = curves_section(compared)
    assert curves.count("<polyline") == 3 * 4
    assert "Validation accuracy" in curves
    by_seed = paired_section(compared).partition("Over seeds")[2]
    assert "<td>a0 + a1</td><td>b0 + b1</td><td class=n>2</td><td class=n>+5.00 points</td>" in by_seed
    none = [Compared(dataclasses.replace(compared[0].standing, name="c"))]
    assert "no run has written metrics" in curves_section(none)
