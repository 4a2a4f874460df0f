"""Limits that bound what the cost models choose are those that were measured."""

import json

import pytest

from benchmarks import fit_limits
from benchmarks.fit_limit_cases import LIMITS, Limit
from benchmarks.fit_limits import count_bytes, list_affordable, name_power, rate

RECORD = json.loads(fit_limits.RECORD.read_text(encoding="utf-8"))
SLOWER = 1.1  # than the best of all values


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_limit_is_about_as_fast_as_any_value_whose_memory_is_affordable(limit: Limit) -> None:
    found = RECORD["limits"][limit.name]
    values = list_affordable(limit, found)
    assert limit.value in values
    assert rate(found, limit.value) <= SLOWER * min(rate(found, value) for value in values)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_the_record_is_of_these_cases(limit: Limit) -> None:
    found = RECORD["limits"][limit.name]
    assert [(case["case"], case.get("size")) for case in found["cases"]] == [(c.title, c.size) for c in limit.cases]
    assert (found["memory"] is None) == (limit.memory is None)


def test_the_page_has_the_limits_of_the_record() -> None:
    page = fit_limits.PAGE.read_text(encoding="utf-8")
    _, begin, after = page.partition(fit_limits.BEGIN)
    table, end, _ = after.partition(fit_limits.END)
    assert begin
    assert end
    assert table == f"\n{fit_limits.render(RECORD)}\n"


def test_a_limit_of_sizes_is_rated_by_the_side_that_each_size_is_on() -> None:
    cases = [
        {"size": 8, "seconds": {"within": 1.0, "beyond": 2.0}},
        {"size": 16, "seconds": {"within": 8.0, "beyond": 1.0}},
    ]
    found = {"cases": cases, "memory": {"of": 8, "bytes": 24}}
    assert [rate(found, value) for value in (4, 8, 15, 16)] == pytest.approx([2**0.5, 1.0, 1.0, 8**0.5])
    assert count_bytes(found, 16) == 48


def test_a_limit_that_is_set_is_rated_by_its_value() -> None:
    found = {"cases": [{"seconds": {"4": 3.0, "8": 1.5}}, {"seconds": {"4": 1.0, "8": 1.0}}], "memory": None}
    assert [rate(found, value) for value in (4, 8)] == pytest.approx([2**0.5, 1.0])
    assert count_bytes(found, 8) == 0.0


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_setting_a_limit_changes_the_package_for_a_while(limit: Limit) -> None:
    before = limit.value
    with limit.set(before + 1):
        assert limit.value == before + 1
    assert limit.value == before


@pytest.mark.parametrize(("value", "name"), [(64, "64"), (1 << 21, "2²¹"), (3 << 19, "3 · 2¹⁹")])
def test_powers_of_two_have_their_name(value: int, name: str) -> None:
    assert name_power(value) == name
