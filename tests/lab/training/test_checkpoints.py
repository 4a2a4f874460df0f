"""Checkpoints are whole or passed over."""

from pathlib import Path

import pytest
import torch

from torchcaps.lab.training import checkpoints
from torchcaps.lab.training.checkpoints import DamagedError, UnknownFormatError

TENSORS = {"model.weight": torch.arange(6.0).reshape(2, 3), "optimizer.weight.step": torch.tensor(3.0)}


def written(folder: Path, *steps: int) -> Path:
    for step in steps:
        checkpoints.write(folder, step, {"step": step, "val_accuracy": None, "sums": [0.1, 2.0]}, TENSORS)
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path) -> None:
    """One bit, in the middle: of a tensor, or of a number."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def test_what_is_written_is_read(tmp_path):
    found = checkpoints.read(written(tmp_path, 7), 7)
    assert (found.step, found.state) == (7, {"step": 7, "val_accuracy": None, "sums": [0.1, 2.0]})
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("damage", [cut, flip, empty, remove])
@pytest.mark.parametrize("which", [0, 1], ids=["tensors", "json"])
def test_a_damaged_one_is_passed_over(tmp_path, damage, which):
    folder = written(tmp_path, 10, 20)
    damage(checkpoints.names(folder, 20)[which])
    found = checkpoints.newest(folder)
    assert found is not None
    assert found.step == 10


def test_every_bit_of_the_json_is_checked(tmp_path):
    folder = written(tmp_path, 1)
    path = checkpoints.names(folder, 1)[1]
    whole = path.read_bytes()
    spaces = b" \n"
    for place in range(0, len(whole), 7):
        if whole[place] in spaces:
            continue
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((DamagedError, UnknownFormatError)):
            checkpoints.read(folder, 1)


def test_nothing_is_found_where_nothing_is_whole(tmp_path):
    assert checkpoints.newest(tmp_path / "nowhere") is None
    cut(checkpoints.names(written(tmp_path, 1), 1)[0])
    assert checkpoints.newest(tmp_path) is None


def test_the_last_and_the_best_are_kept(tmp_path):
    for step, accuracy in {1: 0.5, 2: 0.9, 3: None, 4: 0.9, 5: 0.6, 6: None}.items():
        checkpoints.write(tmp_path, step, {"val_accuracy": accuracy}, TENSORS)
    (tmp_path / "step-00000009.safetensors.part").write_bytes(b"half")
    checkpoints.tidy(tmp_path, keep_last=2, keep_best=1)
    assert checkpoints.steps(tmp_path) == [2, 5, 6]
    assert len(list(tmp_path.iterdir())) == 6
    best = checkpoints.best(tmp_path)
    assert best is not None
    assert best.step == 2


@pytest.mark.parametrize("damage", [flip, remove])
@pytest.mark.parametrize("which", [0, 1], ids=["tensors", "json"])
def test_nothing_stands_in_for_a_damaged_best(tmp_path, damage, which):
    for step, accuracy, best in ((1, 0.5, 0.5), (2, 0.9, 0.9), (3, None, 0.9)):
        checkpoints.write(tmp_path, step, {"val_accuracy": accuracy, "best": best}, TENSORS)
    found = checkpoints.best(tmp_path)
    assert found is not None
    assert found.step == 2
    damage(checkpoints.names(tmp_path, 2)[which])
    with pytest.raises(DamagedError, match="damaged"):
        checkpoints.best(tmp_path)


def test_a_format_of_the_future_is_refused_and_left_alone(tmp_path):
    path = checkpoints.names(written(tmp_path, 1, 2), 2)[1]
    path.write_text(path.read_text().replace("torchcaps-checkpoint-1", "torchcaps-checkpoint-7"))
    before = sorted((each.name, each.read_bytes()) for each in tmp_path.iterdir())
    with pytest.raises(UnknownFormatError, match="has the format 'torchcaps-checkpoint-7'; this version of torchcaps"):
        checkpoints.newest(tmp_path)
    assert sorted((each.name, each.read_bytes()) for each in tmp_path.iterdir()) == before
