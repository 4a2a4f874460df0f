"""Every file operation of a training fails once: it resumes to the same bits. ``make torture`` tries all of them."""

import os
from pathlib import Path

import pytest

from tests.lab.training import faults

EVERY = 6  # of the operations, one in so many here


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the paths of open files are read from /proc")
def test_a_training_survives_a_fault_of_any_file_operation(tmp_path, record_property):
    operations, model = faults.count_operations(tmp_path / "whole")
    kinds = {operation.split()[0] for operation in operations}
    assert {"open", "write", "fsync", "replace", "mkdir"} <= kinds
    said = [
        faults.survive(tmp_path / f"run-{number}", number, faults.ERRORS[number // EVERY % 2], model)
        for number in range(0, len(operations), EVERY)
    ]
    ended = sum(bool(each) for each in said)
    record_property("faults", len(said))
    print(f"{len(operations)} file operations, {len(said)} made to fail: {ended} ended with a message, none lost")
    assert ended > len(said) // 2
    assert any(os.strerror(faults.ERRORS[1]) in each for each in said)
