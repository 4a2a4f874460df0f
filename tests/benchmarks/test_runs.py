"""All suites in one run: records that belong together, whatever fails, and a page that says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import runs, write_page
from benchmarks.__main__ import main

MISSED = {"cases": [{"name": "x", "reached": False}, {"name": "y", "reached": True}]}


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Processes that write a record with a miss, except growth, which crashes; the suites that were run."""
    ran = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        if command[0] != sys.executable:  # git
            return subprocess.CompletedProcess(command, 0, stdout="abc1234\n")
        name, out = command[3], Path(command[command.index("--out") + 1])
        ran.append(name)
        if name == "growth":
            return subprocess.CompletedProcess(command, -9)
        out.write_text(json.dumps(MISSED | {"run": {"started": "by itself"}}))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(runs.subprocess, "run", run)
    return ran


def test_a_run_names_misses_and_goes_on_after_a_failure(
    suites: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["all", "--only", "load", "growth", "training", "--out-dir", str(tmp_path / "records")]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    assert main() == 1
    assert suites == ["load", "growth", "training"]
    text = capsys.readouterr().out
    assert "[2/3] growth" in text
    assert "growth: failed with exit code -9" in text
    assert "load: 1 target missed" in text
    assert "  x: not reached" in text
    assert "abc1234" in text
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "records").iterdir())]
    assert [record["run"]["commit"] for record in records] == ["abc1234"] * 2
    assert records[0]["run"] == records[1]["run"]


def test_nothing_is_recorded_unless_asked_for(suites: list[str], tmp_path: Path) -> None:
    results = runs.run_suites(["load"], repeats=1, threads=1, say=lambda _: None)
    assert [result.misses for result in results] == [(("x", "not reached"),)]
    assert not list(tmp_path.iterdir())


def test_the_suite_of_text_is_left_out_without_its_package(suites: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.importlib.util, "find_spec", lambda _: None)
    (result,) = runs.run_suites(["text"], repeats=1, threads=1, say=lambda _: None)
    assert "torchcaps[text]" in result.describe()
    assert result.reached
    assert not suites


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["all", "--only", "x"], "no suite 'x' in all"),
        (["all", "--only", "peers"], "no suite 'peers' in all"),
        (["all", "--out", "x.json"], "--out-dir for all"),
        (["routing", "--out-dir", "x"], "--out-dir for all"),
        (["all", "--routing", "dynamic"], "--routing is for the suite layers"),
        (["all", "--repeats", "0"], "at least 1"),
    ],
)
def test_wrong_options_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    assert main() == 2
    assert message in capsys.readouterr().out


def test_the_page_names_one_run_once_and_several_at_each_table() -> None:
    one, other = ({"run": runs.describe_run() | {"commit": commit}} for commit in ("abc1234", "def5678"))
    parts = {"routing": "## Routing\n\nText.\n", "models": "## Models\n\nText.\n", "costs": "## Paths\n\nText.\n"}

    def write(*records: dict) -> str:
        return "\n".join(write_page.name_runs(parts, dict(zip(parts, records, strict=True))))

    same, differing = write(one, one, {}), write(one, other, {})
    assert same.startswith("All suites are of one run")
    assert same.count("abc1234") == 1
    assert "## Models\n\nThis is of a run: " in differing
    assert differing.count("abc1234") == differing.count("def5678") == 1
    assert "## Paths\n\nText." in differing
    assert "## Models\n\nThis is of an earlier run. Text." in write(one, {}, {})
    assert write({}, {}, {}).startswith(write_page.UNKNOWN)
