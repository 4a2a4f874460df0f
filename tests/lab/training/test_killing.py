"""kill -9 at random moments: what is resumed ends with the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.training import tiny

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked here, which this system cannot do")
def test_killed_at_random_moments(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.lab.training.killing", str(tmp_path), "3", "11"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lives = done.stdout.splitlines()
    assert len(lives) == 3
    assert any(life.startswith("unfinished step-") for life in lives), "a kill in the middle of training"
    assert tiny.same_bits(tiny.weights(tmp_path / "killed"), tiny.weights(tmp_path / "whole"))
    assert tiny.untimed(tmp_path / "killed") == tiny.untimed(tmp_path / "whole")
