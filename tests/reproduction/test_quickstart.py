"""The quickstart's table: one line for every routing of the comparison, and what its record says."""

from pathlib import Path

from reproduction import RecordPaths
from reproduction.comparison_plan import TITLES
from reproduction.quickstart import quickstart_table

ROOT = Path(__file__).resolve().parents[2]


def test_every_routing_has_its_line():
    lines = quickstart_table(RecordPaths(ROOT / "reproduction" / "records" / "runs")).splitlines()[2:]
    assert {line.split("`")[1] for line in lines} == {f"--model.routing {name}" for name in TITLES.values()}
    assert len(lines) == len(TITLES)
    assert "| 80.60 % (78.03–82.93) |" in lines[-1]  # 806 of 1,000, Wilson's interval
