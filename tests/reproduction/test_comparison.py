"""The comparison in one table and one figure, and the claims in one table: made of records alone."""

from pathlib import Path
from typing import Any

import pytest

from reproduction import PLAN, Job, RecordPaths, claims_table, comparison_table
from reproduction.comparison import describe_gains, gains_table, stands
from reproduction.comparison_figure import draw_comparison
from reproduction.comparison_plan import COMPARED, COMPARISON, SCENES, TITLES
from torchcaps.files import write_json

from .planted import plant


@pytest.fixture
def places(tmp_path: Path) -> RecordPaths:
    return RecordPaths(tmp_path / "results" / "runs", tmp_path / "runs", tmp_path / "figures")


def plant_robustness(places: RecordPaths, data: str, columns: tuple[str, ...], numbers: tuple[Any, ...]) -> None:
    for group in COMPARED:
        name = f"comparison-{SCENES[data]}-{group}robustness"
        (found,) = (each for each in COMPARISON.studies if each.name == name)
        write_table(places, name, columns, [(network, *numbers) for network in found.runs])


def plant_costs(places: RecordPaths, numbers: dict[str, tuple[float, float]]) -> None:
    """Time and memory of all routings, by data."""
    rows = [(f"{data}, {routing}", *each) for data, each in numbers.items() for routing in TITLES]
    write_table(places, "comparison-costs", ("training step, ms", "memory, MiB"), rows)


def write_table(places: RecordPaths, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    path = places.study(next(each for each in COMPARISON.studies if each.name == name), "laptop")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"columns": ["network", *columns], "rows": rows})


def row_of(table: str, name: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_without_records_the_stage_is_empty(places: RecordPaths):
    assert row_of(comparison_table(places), "EM") == ["EM", *["–"] * 7]
    assert draw_comparison(places).axes


def test_the_stage_in_one_table(places: RecordPaths):
    for seed, correct in enumerate((9000, 9100, 9200)):
        plant(places, Job(COMPARISON.name, COMPARISON.item("toys, EM"), seed, "laptop"), correct)
    plant_costs(places, {data: (10.0 * number, 3.0) for number, data in enumerate(SCENES)})
    for number, data in enumerate(SCENES):
        seeds = [40.0 + number, 41.0 + number, 42.0 + number], [60.0 + number, 61.0 + number, 62.0 + number]
        plant_robustness(places, data, ("rotation, mean %", "noise, mean %"), seeds)
    cells = row_of(comparison_table(places), "EM")
    assert cells[1:4] == ["–"] * 3
    assert cells[4] == "91.00 % (88.52–93.48)"  # Student's: 4.303 · 1 / √3 beside 91
    assert cells[5:] == ["15 ms", "3 MiB", "52.5 % (50.0–55.0)"]
    assert stands(places)["FM"]["toys"].distorted == (53.0, 54.0, 55.0)
    drawn = draw_comparison(places)
    assert [panel.get_title() for panel in drawn.axes] == [*SCENES, "training step", *[""] * 4, "memory of inference"]
    shown = [[text.get_text() for text in drawn.axes[place].texts] for place in (4, 9)]
    assert shown == [["15"] * len(TITLES), ["3"] * len(TITLES)]
    assert [len(panel.lines) for panel in drawn.axes[:4]] == [0, 0, 0, 2]  # one routing was run: its interval, its mean
    assert [len(panel.lines) for panel in drawn.axes[5:9]] == [2 * len(TITLES)] * 4


def test_a_mean_over_some_of_the_data_is_not_shown(places: RecordPaths):
    plant_costs(places, {"toys": (10.0, 3.0)})
    assert row_of(comparison_table(places), "EM")[5:] == ["–"] * 3


def test_gains_over_no_routing_are_paired_by_seed(places: RecordPaths):
    numbers = {
        "uniform": (9000, 9100, 9200),
        "EM": (9100, 9201, 9299),
        "FM": (9000, 9150, 9100),
        "dynamic": (8000, 8101),
    }
    for routing, of_seeds in numbers.items():
        for seed, correct in enumerate(of_seeds):
            plant(places, Job(COMPARISON.name, COMPARISON.item(f"toys, {routing}"), seed, "laptop"), correct)
    table = gains_table(places)
    assert row_of(table, "EM")[1:] == ["not run yet"] * 3 + [
        "**+1.00 (+0.98 to +1.02)**"
    ]  # Student's: 4.303 · 0.01 / √3
    assert row_of(table, "FM")[4] == "-0.17 (-2.06 to +1.73)"
    assert row_of(table, "dynamic")[4] == "not run yet"  # two of three seeds
    assert all(not line.startswith("| uniform ") for line in table.splitlines())
    words = describe_gains(places)
    assert "Of 2 comparisons of a routing with no routing at all, routing is better in 1, worse in 0" in words
    assert f"{4 * (len(TITLES) - 1) - 2} of {4 * (len(TITLES) - 1)} are not run yet" in words
    assert "- EM: better on toys.\n- FM: no difference seen on toys." in words


def test_claims_in_one_table(places: RecordPaths):
    mnist = PLAN[0]
    for name, correct in (("3 iterations, reconstruction", 9950), ("CNN", 9900)):
        for seed in range(3):
            plant(places, Job(mnist.name, mnist.item(name), seed, "laptop"), correct + seed)
    lines = claims_table(places).splitlines()
    assert len(lines) == 2 + sum(len(point.claims) for point in PLAN)
    assert lines[2].startswith("| **CapsNet on MNIST** | CapsNet with 3 iterations")
    assert lines[2].endswith("| 0.25 against 0.39 % error | 0.49 against 0.99 % error | reproduced |")
    assert lines[3].startswith("|  | reconstruction helps")
    assert all("not run yet" in line for line in lines[3:])


def test_what_studies_compare_is_a_claim_as_well(places: RecordPaths):
    (found,) = (each for point in PLAN for each in point.studies if each.name == "toys-attacks")
    seeds = {"text": "more robust", "of": "seeds", "better": [0.5, 0.6, 0.7], "worse": [0.2, 0.3, 0.4]}
    times = {"text": "is faster", "better": [1.0, 2.0], "worse": [3.0, 4.0]}
    path = places.study(found, "laptop")
    path.parent.mkdir(parents=True)
    write_json(path, {"comparisons": [seeds, times]})
    assert claims_table(places).splitlines()[-2:] == [
        "|  | more robust | – | 60.00 against 30.00 % accuracy | reproduced |",
        "|  | is faster | – | – | not reproduced |",
    ]
