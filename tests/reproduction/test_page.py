"""The page says what the records say, by its rule, and the one in docs is the generator's."""

from pathlib import Path

import pytest

from reproduction import PLAN, Job, PaperClaim, RecordPaths, judge, results_page
from reproduction.page import experiment
from reproduction.verdicts import compare, survive_holm
from tests.support import script
from torchcaps.files import read_json, write_json
from torchcaps.lab.training.records import label

from .planted import plant

ROOT = Path(__file__).resolve().parents[2]
MNIST = PLAN[0]


@pytest.fixture
def places(tmp_path: Path) -> RecordPaths:
    return RecordPaths(tmp_path / "results" / "runs", tmp_path / "runs", tmp_path / "figures")


def seeds(places: RecordPaths, name: str, *correct: int) -> None:
    item = MNIST.item(name)
    for seed, right in zip(item.seeds, correct, strict=False):
        plant(places, Job(MNIST.name, item, seed, "laptop"), right)


def verdicts(places: RecordPaths) -> list[str]:
    lines = results_page(places, (MNIST,)).splitlines()
    return [line.split("**")[1] for line in lines if line.startswith("- ")]


def test_without_records_nothing_was_run(places: RecordPaths):
    page = results_page(places)
    assert page.count("**not run yet**") == sum(len(point.claims) for point in PLAN)
    assert "0 reproduced" in page
    assert f"0 of {sum(1 for point in PLAN for _ in point.jobs('laptop'))} are recorded" in page


def test_verdicts_follow_from_the_intervals(places: RecordPaths):
    seeds(places, "3 iterations, reconstruction", 9950, 9951, 9952)
    seeds(places, "CNN", 9900, 9901, 9902)
    seeds(places, "3 iterations", 9990, 9991, 9992)
    seeds(places, "1 iteration, reconstruction", 9930, 9955, 9960)
    seeds(places, "3 iterations, reconstruction, long", 9940)
    assert verdicts(places) == ["reproduced", "not reproduced", "inconclusive", "no verdict"]
    page = results_page(places, (MNIST,))
    assert "Of 4 claims: 1 reproduced, 1 not reproduced, 1 inconclusive, 1 no verdict, 0 not run yet" in page
    assert "0.49 % error (0.47–0.51) | 0, 1, 2 |" in page  # Student's: 4.303 · 0.0001 / √3 beside 0.0049
    reasons = ["Likely reason: " in line for line in page.splitlines() if line.startswith("- ")]
    assert reasons == [False, True, True, False]  # what was not reproduced has one, and what is inconclusive


def test_too_few_seeds_decide_nothing(places: RecordPaths):
    seeds(places, "3 iterations, reconstruction", 9950, 9951)
    seeds(places, "CNN", 9000, 9001)
    assert verdicts(places)[0] == "inconclusive"
    page = results_page(places, (MNIST,))
    assert "2 of 3 seeds were run" in page
    assert "Likely reason" not in page  # which nobody knows before all was run


@pytest.mark.parametrize("correct", [9990, 9949])
def test_a_target_of_one_seed_gets_its_interval_and_no_verdict(places: RecordPaths, correct: int):
    seeds(places, "3 iterations, reconstruction, long", correct)
    claim = next(claim for claim in MNIST.claims if claim.error_at_most is not None)
    found = judge(claim, experiment(MNIST.item(claim.better), places))
    assert found.word == "no verdict"
    assert found.why.startswith(f"{10_000 - correct} of 10,000 test examples, ")
    assert found.why.endswith("; target 0.50 %")


def test_holm_steps_down_and_stops_at_the_first_that_fails():
    assert survive_holm([0.04, 0.01, 0.03, 0.005]) == [False, True, False, True]
    assert survive_holm([0.02, 0.04]) == [True, True]
    assert survive_holm([0.026, 0.04]) == [False, False], "the smallest fails, so the next is not looked at"
    assert survive_holm([]) == []


def test_the_other_way_round_is_not_reproduced():
    assert compare((0.1, 0.2), (0.3, 0.4)).word == "not reproduced"
    assert compare((0.3, 0.4), (0.1, 0.2)).word == "reproduced"
    assert compare((0.1, 0.3), (0.3, 0.4)).word == "inconclusive"
    assert judge(PaperClaim("", "", "a", "b"), None, None).word == "not run yet"


def test_studies_and_failures_are_shown(places: RecordPaths):
    point = PLAN[3]
    *_, study = point.studies
    comparison = {"text": "FM is faster", "better": [2.0, 3.0], "worse": [1.0, 1.5], "otherwise": "chance"}
    slower = {**comparison, "text": "FM is slower", "better": [0.1, 0.2]}
    seeds = {**comparison, "text": "FM is better", "of": "seeds", "better": [0.5, 0.6, 0.7], "worse": [0.2, 0.3, 0.4]}
    rows = [["x", [{"correct": n, "total": 10} for n in (5, 6, 7)], 1.23456, [50.0, 60.0, 70.0]]]
    rows.append(["y", {"correct": 5, "total": 10}, [{"correct": 5, "total": 10}], 3])
    record = {"about": "All.", "seconds": 3.0, "columns": list("abcd"), "rows": rows, "figures": ["f.png"]}
    path = places.study(study, "laptop")
    path.parent.mkdir(parents=True)
    write_json(path, record | {"comparisons": [comparison, slower, seeds]})
    name = next(point.jobs("laptop")).name
    places.write_failure(name, {"scale": "laptop", "error": "ValueError: too\nbad"})
    page = results_page(places, (point,))
    assert "| x | 60.00 % (35.16–84.84; 3 × 10) | 1.235 | 60 (35.16–84.84) |" in page
    assert "| y | 50.00 % (23.66–76.34; 10) | 50.00 % (23.66–76.34; 10) | 3 |" in page
    difference = "difference +30.00 %, from +7.33 to +52.67; p = 0.021, survives Holm's correction"
    assert f"- FM is better: **reproduced** ({difference}).\n" in page
    assert "- FM is faster: **reproduced**.\n" in page
    assert (
        "- FM is slower: **not reproduced** (the intervals lie the other way round). Likely reason: chance.\n" in page
    )
    assert "(images/results/f.png)" in page
    assert f"- failed: `{name}`: ValueError: too bad" in page


def test_the_page_in_docs_is_the_generators():
    writer = script("reproduction/write_results_page")
    assert writer.PAGE.read_text(encoding="utf-8") == writer.text(), "run reproduction/write_results_page.py"


def test_every_committed_record_is_under_the_name_that_the_plan_looks_for():
    """A renamed option renames its records too: the page would take them for trainings that were not run."""
    places = RecordPaths(ROOT / "reproduction" / "records" / "runs")
    planned = {places.record(job) for point in PLAN for job in point.jobs("laptop")}
    beside_the_plan = {"quickstart", "quickstart-small"}
    found = {path for path in places.results.glob("*/*.json") if path.parent.name not in beside_the_plan}
    assert found <= planned  # what is planned may not be run yet
    assert found
    for path in places.results.glob("*/*.json"):
        record = read_json(path)
        assert path.stem == label(record["scale"], record["seed"], record.get("overrides", ())), path
