"""The benchmark command runs, compares, and its page is made from its records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import cases, opponents
from benchmarks.__main__ import main
from tests.support import script

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_page_is_made_from_the_records() -> None:
    writer = script("benchmarks/write_page")
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert text == writer.page(text), "run benchmarks/write_page.py"
    text = (ROOT / "README.md").read_text()
    assert text == writer.readme(text), "run benchmarks/write_page.py"


def test_the_command_measures_and_records(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    command = [sys.executable, "-m", "benchmarks", "routing", "--only", "heinsen-sst", "--repeats", "1"]
    done = subprocess.run([*command, "--threads", "1", "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr  # whether a target was reached is not a unit test's business
    (case,) = json.loads(out.read_text())["cases"]
    assert case["name"] == "heinsen-sst"
    assert case["comparisons"][0]["leaner"] > 1.0
    assert "literal" in done.stdout
    assert "\x1b" not in done.stdout


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for words, message in ((["speed"], "no suite 'speed'"), (["routing", "--only", "x"], "no case 'x'")):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        assert main() == 2
        assert message in capsys.readouterr().out


@pytest.mark.parametrize("name", cases.ROUTING)
def test_every_case_can_be_made(name: str) -> None:
    case = cases.ROUTING[name]()
    assert next(iter(case.contenders)) == cases.OURS
    assert {target.opponent for target in case.targets} <= set(case.contenders)


def test_opponents_compute_the_same_thing() -> None:
    torch.manual_seed(0)
    pose, weight = torch.randn(2, 5, 3), torch.randn(5, 4, 3, 6)
    assert torch.allclose(opponents.dynamic_broadcast(pose, weight), opponents.dynamic_einsum(pose, weight), atol=1e-5)
