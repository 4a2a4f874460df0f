"""Routings learn in the quickstart: records of ``torchcaps train quickstart --scale laptop --model.routing NAME``."""

from pathlib import Path

import pytest

import torchcaps.lab.recipes as recipes
from torchcaps.lab.reports.records import read_records
from torchcaps.routing import ROUTINGS

RECORDS = Path(__file__).resolve().parents[2] / "reproduction" / "records" / "runs" / "quickstart"


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_routing_reaches_the_quickstarts_aim(routing: str):
    assert routing in ROUTINGS
    (record,) = [one for one in read_records(RECORDS) if one.overrides == ("--model.routing", routing)]
    target = recipes.get("quickstart", "laptop").claim.target
    assert (record.recipe, record.scale, record.target) == ("quickstart", "laptop", target)
    assert (record.test_data, record.total) == ("mnist_sample", 1000)
    assert target is not None
    assert 100 * record.value >= target
