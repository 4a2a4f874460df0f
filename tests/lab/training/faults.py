"""Faults in file operations: each open, write, fsync, rename, mkdir and unlink inside a folder can be made to fail."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe, Data
from torchcaps.lab.training import TrainOptions, train
from torchcaps.lab.training.progress import Board

ERRORS = (errno.EIO, errno.ENOSPC)


class Faults:
    """Counts the operations inside a folder; that of number ``fail_at`` fails, once."""

    def __init__(self, folder: Path, fail_at: int | None = None, error: int = errno.EIO) -> None:
        self.folder, self.fail_at, self.error = folder, fail_at, error
        self.operations: list[str] = []

    def meet(self, operation: str, path: Any, named: bool = True) -> None:
        """An operation on a path is about to happen."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        if self.folder not in (Path(path), *Path(path).parents):
            return
        self.operations.append(f"{operation} {Path(path).relative_to(self.folder.parent)}")
        if len(self.operations) - 1 == self.fail_at:
            # As the system does it: calls that were given a path name it, those on an open file do not.
            raise OSError(self.error, os.strerror(self.error), *([str(path)] if named else []))

    @contextmanager
    def active(self) -> Iterator[None]:
        meet = self.meet

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                meet("write", self.fileno(), named=False)
                return super().write(content) or 0

        class Buffered(io.BufferedRandom):
            def write(self, content: Any) -> int:
                meet("write", self.fileno(), named=False)
                return super().write(content)

        real_open = io.open

        def open_file(file: Any, mode: str = "r", buffering: int = -1, *given: Any, **options: Any) -> Any:
            if isinstance(file, int):
                return real_open(file, mode, buffering, *given, **options)
            meet("open", file)
            return (
                Raw(file, mode.replace("b", ""))
                if buffering == 0
                else real_open(file, mode, buffering, *given, **options)
            )

        def counted(name: str, named: bool = True) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(path: Any, *given: Any, **options: Any) -> Any:
                meet(name, path, named)
                return real(path, *given, **options)

            return call

        with pytest.MonkeyPatch.context() as patched:
            for name in ("open", "replace", "rename", "mkdir", "unlink"):
                patched.setattr(os, name, counted(name))
            patched.setattr(os, "fsync", counted("fsync", named=False))
            patched.setattr(os, "fdopen", lambda handle, mode: Buffered(io.FileIO(handle, mode.replace("b", ""))))
            patched.setattr(io, "open", open_file)
            patched.setattr(Board, "_open", lambda *given: None)  # its faults never matter; see test_folders
            yield


def recipe() -> AnyRecipe:
    """Two steps, each with a look at validation examples."""
    data = Data("mnist_sample", val_size=6, limit=6, test_limit=6)
    return tiny.recipe(data=data, batch_size=6, epochs=9.0, max_steps=2)


def life(folder: Path, resume: bool = True) -> bytes:
    """Train from where the folder is to the end; the model's file."""
    train(recipe(), folder, resume=resume, options=TrainOptions(every=1))
    return (folder / "model.safetensors").read_bytes()


def count_operations(folder: Path) -> tuple[list[str], bytes]:
    """All operations of a training in which nothing fails, and its model."""
    faults = Faults(folder)
    with faults.active():
        model = life(folder)
    return faults.operations, model


def survive(folder: Path, number: int, error: int, model: bytes) -> str:
    """Train with one fault, then once more without: the same model has to come out, and the message to name a file.
    What the faulty training said is returned; nothing if it went on in spite of the fault."""
    faults = Faults(folder, number, error)
    said = ""
    with faults.active():
        try:
            life(folder)
        except (OSError, ValueError) as caught:
            said = str(caught)
            assert str(folder) in said, f"{said!r} does not name the file of {faults.operations[-1]}"
            assert os.strerror(error) in said, f"{said!r} does not say why {faults.operations[-1]} failed"
    assert len(faults.operations) > number, "the fault was not reached"
    assert life(folder) == model, f"another model after {os.strerror(error)} in {faults.operations[number]}"
    assert not list(folder.rglob("*.part")), "something half-written was left"
    return said
