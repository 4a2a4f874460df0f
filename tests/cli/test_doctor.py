"""``torchcaps doctor``: what it prints, its exit code, and the section of the run's report."""

import json
from pathlib import Path

import pytest

from tests.lab.training import tiny
from torchcaps.cli import main
from torchcaps.lab.recipes import Transforms
from torchcaps.lab.reports import run_report
from torchcaps.lab.reports.charts import Range, range_chart
from torchcaps.lab.training import Run, TrainOptions, train


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny.recipe(), tmp_path_factory.mktemp("doctor") / "healthy")


def test_a_run_without_findings(healthy: Run, capsys: pytest.CaptureFixture[str]):
    before = tiny.weights(healthy.folder)
    assert main(["doctor", str(healthy.folder), "--quick", "--no-report"]) == 0
    said = capsys.readouterr().out
    assert "sabour2017_mnist: nothing found in" in said
    written = json.loads((healthy.folder / "diagnosis.json").read_text())
    assert written["findings"] == []
    assert [layer["routing"] for layer in written["layers"]] == ["dynamic"]
    assert tiny.same_bits(before, tiny.weights(healthy.folder))


def test_a_run_with_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "run"
    recipe = tiny.recipe(transforms=Transforms(std=(1 / 255,)))
    train(recipe, folder, options=TrainOptions(doctor=False))
    assert "diagnosis" not in run_report(Run.open(folder)).read_text()
    assert main(["doctor", str(folder), "--examples", "40"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "input-range" in said
    assert "doctor.html#input-range" in said
    page = (folder / "report.html").read_text()
    assert '<section id="diagnosis">' in page
    for figure in ("Presence of the primary", "Entropy of the couplings", "Gradient in the vote weights", "by heart"):
        assert figure in page
    assert "bytes are divided by 255" in page

    train(recipe, folder, options=TrainOptions(doctor=False, overwrite=True, overrides=("again",)))
    assert not (folder / "diagnosis.json").exists(), "it goes with the run that it is of"


def test_a_diagnosis_of_other_weights_is_not_shown(healthy: Run):
    main(["doctor", str(healthy.folder), "--quick", "--no-report"])
    path = healthy.folder / "diagnosis.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"weights_sha256": "0" * 64}))
    assert "it is of another state of this run" in run_report(healthy).read_text()


def test_a_run_that_has_not_begun_is_examined_as_it_would_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    Run(tmp_path / "run", tiny.recipe()).write()
    assert main(["doctor", str(tmp_path / "run"), "--quick"]) == 0
    assert "no report: " in capsys.readouterr().out


def test_what_is_wrong_is_said(tmp_path: Path, healthy: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", str(tmp_path)]) == 2
    assert "is no run folder" in capsys.readouterr().err
    assert main(["doctor", str(healthy.folder), "--examples", "1"]) == 2
    assert "--examples is 1; give at least 2" in capsys.readouterr().err


def test_ranges_are_drawn_where_they_are():
    drawn = range_chart("Presence", "capsule", [Range(0.0, 0.5, 1.0), Range(0.25, 0.25, 0.25)])
    assert drawn.count("<g>") == 2
    assert "capsule 0: 0.5 in the mean, 0 to 1" in drawn
    assert 'height="1.5"' in drawn, "what never changes can be seen as well"
