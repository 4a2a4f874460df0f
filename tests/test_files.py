"""The one writer: whole files or none, ordinary modes, errors that name the file."""

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcaps
from torchcaps.files import encode_tensors, read_json, read_object, replace_file, write_bytes, write_json


def test_a_file_has_the_mode_of_its_neighbors(tmp_path: Path) -> None:
    (tmp_path / "neighbor").touch()
    write_bytes(tmp_path / "file", b"content")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fail(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=re.escape(f"cannot write {path}: {os.strerror(number)}")) as caught:
        write_bytes(path, b"after")
    monkeypatch.undo()
    assert caught.value.errno == number
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"before"


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with replace_file(tmp_path / "file") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="its folder is gone"):
        write_bytes(tmp_path / "gone" / "file", b"content")
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[1]", "holds a JSON list; expected an object"),
        (b"null", "holds a JSON null; expected an object"),
        (b'{"b": 1}', "lacks 'a'"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"\xff", "is no JSON file"),
        (b"{", "is no JSON file"),
    ],
)
def test_wrong_json_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "file.json")) + ".*" + re.escape(expected)):
        read_object(tmp_path / "file.json", "a")


def test_json_of_any_text_comes_back(tmp_path: Path) -> None:
    for text in ("Größe ×", "bytes \udcff that are no text"):
        write_json(tmp_path / "file.json", {"name": text})
        assert read_json(tmp_path / "file.json") == {"name": text}


def test_equal_tensors_are_equal_bytes_in_every_process() -> None:
    script = (
        "import hashlib, torch; from torchcaps.files import encode_tensors; "
        "content = encode_tensors({'b': torch.ones(3), 'a': torch.zeros(2, 2)}, {k: k * 9 for k in 'zyxwvutsrq'}); "
        "print(hashlib.sha256(content).hexdigest())"
    )
    folder = Path(torchcaps.__file__).parents[1]
    found = {
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True).stdout for _ in "12"
    }
    assert len(found) == 1


def test_encoded_tensors_are_a_safetensors_file(tmp_path: Path) -> None:
    from safetensors import safe_open

    tensors = {"b": torch.arange(3), "a": torch.randn(2, 2)}
    write_bytes(tmp_path / "file", encode_tensors(tensors, {"name": "Größe", "a": ""}))
    with safe_open(tmp_path / "file", framework="pt") as file:
        assert file.metadata() == {"name": "Größe", "a": ""}
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in tensors.items())
