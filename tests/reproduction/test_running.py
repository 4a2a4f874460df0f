"""A campaign does what is not recorded, goes on after failures and stops, and says how it ended."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from reproduction import Campaign, Item, Point, RecordPaths, Study, in_order, running
from reproduction.__main__ import main
from reproduction.comparison_plan import COMPARISON
from reproduction.studies import light_picture
from torchcaps.files import read_json
from torchcaps.lab.training import Run, StoppedError

from .planted import plant

SMALL = Item("comparison", "comparison/mnist-sample", 1.0, ("--model.routing", "fm"), seeds=(0, 1))
TINY = Point(
    "tiny",
    "Tiny",
    "about",
    (SMALL,),
    studies=(Study("tiny-cost", "Cost", "cost", ("comparison",)), Study("tiny-time", "Time", "inference_time")),
)


@pytest.fixture
def places(tmp_path: Path) -> RecordPaths:
    return RecordPaths(tmp_path / "results" / "runs", tmp_path / "runs", tmp_path / "figures")


def campaign(places: RecordPaths, *points: Point, **options) -> Campaign:
    return Campaign(points, "smoke", places, Console(quiet=True), threads=1, **options)


def test_everything_is_done_once(places: RecordPaths):
    outcome = campaign(places, TINY).run()
    assert (outcome.done, outcome.skipped, outcome.failed, outcome.left, outcome.code) == (4, 0, [], [], 0)
    first, second = in_order((TINY,), "smoke")
    record = read_json(places.record(first))
    assert (record["seed"], record["overrides"]) == (0, ["--model.routing", "fm", "--seed", "0"])
    assert read_json(places.record(second))["seed"] == 1
    study = read_json(places.study(TINY.studies[0], "smoke"))
    assert study["runs"] == ["comparison-mnist-sample/smoke-model.routing-fm-seed0"]
    assert study["rows"][0][0] == "comparison"
    assert len(read_json(places.study(TINY.studies[1], "smoke"))["comparisons"]) == 4
    again = campaign(places, TINY).run()
    assert (again.done, again.skipped, again.left) == (0, 2, [])


def test_a_study_of_every_seed_waits_for_all_and_has_each(places: RecordPaths):
    names = ("fm", "dynamic")
    items = tuple(Item(name, "comparison/mnist-sample", 1.0, ("--model.routing", name), seeds=(0, 1)) for name in names)
    kinds = ("attacks", "familiar", "robustness", "learning")
    studies = tuple(Study(f"two-{kind}", kind, kind, names, every_seed=True) for kind in kinds)
    two = Point("two", "Two", "about", items, studies=studies)
    last = in_order((two,), "smoke")[-1]
    with places.held(last.name):
        assert campaign(places, two).run().left == [study.name for study in studies]
    assert campaign(places, two).run().failed == []
    attacks, familiar, robustness, learning = (read_json(places.study(study, "smoke")) for study in studies)
    ends = [run.rpartition("routing-")[2] for run in attacks["runs"]]
    assert ends == ["fm-seed0", "fm-seed1", "dynamic-seed0", "dynamic-seed1"]
    for record in (attacks, familiar):
        assert [row[0] for row in record["rows"]] == list(names)
        assert all(len(cell) == 2 and cell[0]["total"] for row in record["rows"] for cell in row[1:])
    assert all(len(cell) == 2 for row in robustness["rows"] for cell in row[1:])
    assert [len(cell) for row in learning["rows"] for cell in row[1:]] == [2] * 6
    assert robustness["figures"] == ["two-robustness-smoke.png"]
    assert (places.figures / "two-robustness-smoke.png").stat().st_size < 150_000
    for comparison, kind in zip(attacks["comparisons"], ("fgsm", "pgd"), strict=True):
        for side, records in (("better", attacks["numbers"][:2]), ("worse", attacks["numbers"][2:])):
            curves = [record["kinds"][kind]["correct"][1:] for record in records]  # the first is of ε = 0
            assert comparison[side] == [sum(curve) / len(curve) / records[0]["total"] for curve in curves]


def test_a_failure_is_written_down_and_the_rest_goes_on(places: RecordPaths):
    bad = Item("bad", "comparison/mnist-sample", 1.0, ("--model.routing", "none"), seeds=(0,))
    good = Item("good", "comparison/mnist-sample", 1.0, ("--model.routing", "dynamic"), seeds=(0,))
    outcome = campaign(places, Point("p", "t", "", (bad, good))).run()
    (name,) = outcome.failed
    assert (outcome.done, outcome.code) == (1, 1)
    assert name == "comparison-mnist-sample-smoke-model.routing-none-seed0"
    assert "no routing 'none'" in places.failures()[name]["error"]
    places.write_failure("comparison-mnist-sample-smoke-model.routing-dynamic-seed0", {"error": "once"})
    places.record(in_order((Point("p", "t", "", (good,)),), "smoke")[0]).unlink()
    campaign(places, Point("p", "t", "", (good,))).run()
    assert list(places.failures()) == [name], "what succeeds is no failure any more"


def test_a_record_that_went_missing_is_copied_and_nothing_is_trained_again(places: RecordPaths, monkeypatch):
    one = Point("p", "t", "", (Item("a", "comparison/mnist-sample", 1.0, ("--model.routing", "fm"), seeds=(0,)),))
    campaign(places, one).run()
    (job,) = in_order((one,), "smoke")
    before = places.record(job).read_text()
    places.record(job).unlink()
    monkeypatch.setattr("torchcaps.lab.training.loop.Loop.go", lambda *_: pytest.fail("trained again"))
    assert campaign(places, one).run().done == 1
    assert places.record(job).read_text() == before


def test_a_stop_ends_the_campaign_and_the_next_goes_on(places: RecordPaths, monkeypatch):
    one = Point("p", "t", "", (SMALL,))
    learn = running.train

    def stopped(recipe, folder, **options):
        Run(folder, recipe, "smoke", options["options"].overrides).write()
        raise StoppedError("stopped")

    monkeypatch.setattr(running, "train", stopped)
    with pytest.raises(StoppedError):
        campaign(places, one).run()
    assert not places.failures()
    monkeypatch.setattr(running, "train", learn)
    assert campaign(places, one).run().done == 2


def test_what_another_process_is_at_is_left_to_it(places: RecordPaths):
    first, second = in_order((TINY,), "smoke")
    with places.held(first.name) as mine, places.held(TINY.studies[1].name):
        assert mine
        outcome = campaign(places, TINY).run()
    assert (outcome.done, outcome.elsewhere, outcome.failed) == (1, [first.name], [])
    assert outcome.left == ["tiny-cost", "tiny-time"], "one lacks a run, the other is held"
    assert places.record(second).is_file()
    assert campaign(places, TINY).run().done == 3, "free again"


def test_nothing_is_begun_that_would_end_too_late(places: RecordPaths):
    times = iter([0.0, 0.0, 3599.0, 3599.0])
    outcome = campaign(places, Point("p", "t", "", (SMALL,)), hours=1.0, clock=lambda: next(times)).run()
    assert outcome.done == 1
    assert outcome.left == ["comparison-mnist-sample-smoke-model.routing-fm-seed1"]


def test_times_are_those_of_other_seeds(places: RecordPaths):
    item = Item("a", "comparison/mnist-sample", 7.0, seeds=(0, 1))
    jobs = in_order((Point("p", "t", "", (item,)),), "laptop")
    assert running.minutes_of(jobs[1], places) == 7.0
    plant(places, jobs[0], 9000, seconds=90.0)
    assert running.minutes_of(jobs[1], places) == 1.5


def test_the_command_lists_and_refuses(capsys, tmp_path: Path):
    assert main(["--list", "--only", "comparison", "--results", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert "MNIST sample, Heinsen: comparison/mnist-sample --model.routing heinsen" in said
    assert f"0 of {len(list(COMPARISON.jobs('laptop')))}" in said
    assert main(["--only", "stages"]) == 2
    assert "no point 'stages'; there are mnist, multimnist" in capsys.readouterr().err
    assert main(["--hours", "0"]) == 2


def test_a_picture_is_made_lighter_until_it_is_light_enough():
    class Heavy:
        def savefig(self, file, format: str, dpi: int) -> None:
            noise = np.random.default_rng(0).integers(0, 256, (dpi, dpi, 3), dtype=np.uint8)
            Image.fromarray(noise).save(file, format=format)

    whole = light_picture(Heavy(), heaviest=10**6)
    assert Image.open(io.BytesIO(whole)).size == (130, 130)
    assert len(Image.open(io.BytesIO(whole)).getcolors() or range(999)) <= 128
    assert Image.open(io.BytesIO(light_picture(Heavy(), heaviest=len(whole) - 1))).size == (110, 110)
    with pytest.raises(ValueError, match="even at 50 dpi"):
        light_picture(Heavy(), heaviest=10)
