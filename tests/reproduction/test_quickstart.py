"""Routings learn in the quickstart: records of ``torchcaps train quickstart --scale laptop --model.routing NAME``."""

import re
from pathlib import Path

import pytest

import torchcaps.lab.recipes as recipes
from torchcaps.lab.reports.records import RunRecord, read_records
from torchcaps.routing import ROUTINGS

ROOT = Path(__file__).resolve().parents[2]
RECORDS = read_records(ROOT / "reproduction" / "records" / "runs" / "quickstart")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.overrides[-1])
def test_a_routing_reaches_the_quickstarts_aim(record: RunRecord):
    option, routing = record.overrides
    assert option == "--model.routing"
    assert routing in ROUTINGS
    target = recipes.get("quickstart", "laptop").claim.target
    assert (record.recipe, record.scale, record.target) == ("quickstart", "laptop", target)
    assert (record.test_data, record.total) == ("mnist_sample", 1000)
    assert target is not None
    assert 100 * record.value >= target


def test_the_documentation_names_the_routings_that_have_a_record():
    page = (ROOT / "docs" / "recipes.md").read_text().replace("\n", " ")
    (named,) = re.findall(r"quickstart reaches 97\.5 % of the test digits with ([^.]*)\.", page)
    recorded = [record.overrides[-1] for record in RECORDS]
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(recorded)
    assert len(recorded) >= 5
