"""Every file operation of a training fails once: it resumes to the same bits. ``make torture`` tries all of them."""

import os
from pathlib import Path

import pytest

from tests.lab.training import faults
from tests.support import THOROUGH

EVERY = 1 if THOROUGH else 23  # of the operations and errors, one in so many here


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="the paths of open files are read from /proc"
)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory) -> faults.FaultyTrainings:
    return faults.FaultyTrainings(tmp_path_factory.mktemp("faults"))


def test_a_training_survives_a_fault_of_any_file_operation(trainings: faults.FaultyTrainings, record_property):
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


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_folder_after(trainings: faults.FaultyTrainings):
    """So that the power may go at any moment; and the record, which says that a run is finished, comes last."""
    operations = trainings.operations["new"]
    named = [number for number, each in enumerate(operations) if each.startswith("replace ")]
    for number in named:
        path = Path(operations[number].split()[1])
        assert operations[number - 1] == f"fsync {path}"
        assert operations[number + 1 : number + 3] == [f"open {path.parent}", f"fsync {path.parent}"]
    written = [Path(operations[number].split()[1]).name for number in named]
    assert written[0].startswith(".recipe.json-")
    assert sum(name.startswith(".step-") for name in written) == 4
    assert [name.partition("-")[0] for name in written[-2:]] == [".model.safetensors", ".record.json"]
