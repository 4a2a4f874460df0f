"""Every file operation of a training fails once: it resumes to the same bits. ``make torture`` tries all of them."""

import os
from pathlib import Path

import pytest

from tests.lab.training import faults
from tests.support import THOROUGH

EVERY = 1 if THOROUGH else 23  # of the operations and errors, one in so many here


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the paths of open files are read from /proc")
def test_a_training_survives_a_fault_of_any_file_operation(tmp_path, record_property):
    trainings = faults.FaultyTrainings(tmp_path)
    kinds = {start: {each.split()[0] for each in trainings.operations[start]} for start in faults.STARTS}
    assert all({"open", "write", "fsync", "replace"} <= found for found in kinds.values()), kinds
    assert {"rename", "rmdir"} <= kinds["overwriting"]
    chosen = trainings.cases[::EVERY]  # an odd number, so that both errors are among them
    said = [trainings.survive(*case) for case in chosen]
    ended = sum(bool(each) for each in said)
    record_property("faults", len(said))
    print(f"{len(said)} of {len(trainings.cases)} faults: {ended} ended with a message, none lost")
    assert ended > len(said) // 2
    assert all(any(os.strerror(error) in each for each in said) for error in faults.ERRORS)
