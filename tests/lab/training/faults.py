"""Faults in file operations: each open, write, fsync, rename, mkdir, unlink and rmdir inside a folder can fail.

Trainings begin in three ways, as their operations differ: in a new folder, from a checkpoint, and over another run.
"""

import errno
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe, Data
from torchcaps.lab.training import TrainOptions, train
from torchcaps.lab.training.progress import Board

ERRORS = (errno.EIO, errno.ENOSPC)
Start = Literal["new", "resumed", "overwriting"]
STARTS: tuple[Start, ...] = get_args(Start)
AUDITED = {"open": "open", "os.rename": "replace rename", "os.mkdir": "mkdir"}
AUDITED |= {"os.remove": "unlink", "os.rmdir": "rmdir"}


class Faults:
    """Counts the operations inside a folder; that of number ``fail_at`` fails, once."""

    def __init__(self, folder: Path, fail_at: int | None = None, error: int = errno.EIO) -> None:
        self.folder, self.fail_at, self.error = folder, fail_at, error
        self.operations: list[str] = []

    def meet(self, operation: str, path: Any, named: bool = True) -> None:
        """An operation on a path is about to happen."""
        path = Path(os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else path)
        if self.folder not in (path, *path.parents):
            return
        self.operations.append(f"{operation} {path.relative_to(self.folder.parent)}")
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
                inside = options.get("dir_fd")  # whole folders are deleted so
                meet(name, path if inside is None else Path(os.readlink(f"/proc/self/fd/{inside}"), path), named)
                return real(path, *given, **options)

            return call

        with pytest.MonkeyPatch.context() as patched:
            for name in ("open", "replace", "rename", "mkdir", "unlink", "rmdir"):
                patched.setattr(os, name, counted(name))
            patched.setattr(os, "fsync", counted("fsync", named=False))
            patched.setattr(os, "fdopen", lambda handle, mode: Buffered(io.FileIO(handle, mode.replace("b", ""))))
            patched.setattr(io, "open", open_file)
            patched.setattr(Board, "_open", lambda *given: None)  # its faults never matter; see test_folders
            yield


def recipe(seed: int = 3) -> AnyRecipe:
    """Two steps, each with a look at validation examples."""
    data = Data("mnist_sample", val_size=6, limit=6, test_limit=6)
    return tiny.recipe(data=data, batch_size=6, epochs=9.0, max_steps=2, seed=seed)


def life(folder: Path, overwrite: bool = False, seed: int = 3) -> bytes:
    """Train from where the folder is to the end; the model's file."""
    train(recipe(seed), folder, resume=not overwrite, options=TrainOptions(every=1, overwrite=overwrite))
    return (folder / "model.safetensors").read_bytes()


class FaultyTrainings:
    """Trainings with one fault each, beside whole ones that say what has to come out."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.model = life(place / "whole")
        life(place / "other", seed=4)
        self.operations = {start: self._count(start) for start in STARTS}

    @property
    def cases(self) -> list[tuple[Start, int, int]]:
        """Every operation of every start, with every error."""
        return [(start, n, e) for start in STARTS for n in range(len(self.operations[start])) for e in ERRORS]

    def _prepare(self, start: Start, folder: Path) -> None:
        if start == "overwriting":
            shutil.copytree(self.place / "other", folder)
        elif start == "resumed":  # as if it had been killed after its first step
            shutil.copytree(self.place / "whole", folder)
            for path in (folder / "record.json", folder / "model.safetensors", *folder.glob("checkpoints/step-*2.*")):
                path.unlink()

    def _count(self, start: Start) -> list[str]:
        """All operations of a training in which nothing fails."""
        folder = self.place / f"{start}-whole"
        self._prepare(start, folder)
        faults = Faults(folder)
        with faults.active():
            assert life(folder, start == "overwriting") == self.model, f"another model, {start}"
        return faults.operations

    def survive(self, start: Start, number: int, error: int) -> str:
        """Train with one fault, then go on without: the same model has to come out, and the message to name a file.
        What the faulty training said is returned; nothing if it went on in spite of the fault."""
        folder = self.place / f"{start}-{number}-{error}"
        self._prepare(start, folder)
        faults = Faults(folder, number, error)
        what = f"{os.strerror(error)} in {self.operations[start][number]} ({start})"
        said = ""
        with faults.active():
            try:
                life(folder, start == "overwriting")
            except (OSError, ValueError) as caught:
                said = str(caught)
                assert str(folder) in said, f"{said!r} does not name the file of {what}"
                assert os.strerror(error) in said, f"{said!r} does not say why: {what}"
        assert len(faults.operations) > number, f"the fault was not reached: {what}"
        refused = ""
        try:
            found = life(folder)
        except ValueError as caught:  # the other run is still there
            refused = str(caught)
            found = life(folder, overwrite=True)
        allowed = start == "overwriting" and f"{folder} was made by another recipe" in refused
        assert not refused or allowed, f"{refused} after {what}"
        assert found == self.model, f"another model after {what}"
        left = [path.name for path in folder.rglob("*") if path.suffix == ".part"]
        assert not left, f"{left} left half-written after {what}"
        shutil.rmtree(folder)
        return said


def audit(folder: Path) -> Counter[str]:
    """Counts what Python itself reports of file operations inside a folder from now on, to see that none escapes
    ``Faults``. Python cannot take such a hook away again."""
    seen: Counter[str] = Counter()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in AUDITED and isinstance(given[0], (str, os.PathLike)):
            path = Path(given[0])
            if folder in (path, *path.parents):
                seen[event] += 1

    sys.addaudithook(hook)
    return seen


def find_unseen(audited: Counter[str], operations: list[str]) -> list[str]:
    """The kinds of operations of which Python reported more than were counted."""
    counted = Counter(operation.split()[0] for operation in operations)
    return [event for event in audited if audited[event] > sum(counted[name] for name in AUDITED[event].split())]
