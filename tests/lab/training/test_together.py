"""Two processes do what one does; one that dies is started again, and the result is the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.training import tiny
from tests.lab.training.test_killing import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked here, which this system cannot do")


def run(*words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The same training by one process and by two."""
    where = tmp_path_factory.mktemp("together")
    run("tests.lab.training.together", str(where), "1", "2")
    return where


def test_two_processes_do_what_one_does(folder: Path):
    alone, together = (tiny.weights(folder / name) for name in ("of-1", "of-2"))
    assert tiny.largest_difference(alone, together) < 1e-5


def test_counts_of_two_processes_are_those_of_one(folder: Path):
    for one, other in zip(*(tiny.untimed(folder / name) for name in ("of-1", "of-2")), strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert {**other, "loss": 0.0} == {**one, "loss": 0.0}


def test_torchrun_starts_a_dead_process_again_and_the_result_is_the_same(folder: Path):
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    run(*torchrun, "--monitor-interval=0.2", "-m", "tests.lab.training.together", str(folder))
    assert tiny.same_bits(tiny.weights(folder / "restarted"), tiny.weights(folder / "of-2"))
    assert tiny.untimed(folder / "restarted") == tiny.untimed(folder / "of-2")
