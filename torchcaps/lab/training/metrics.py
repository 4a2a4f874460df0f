"""Metrics as lines of JSON, cut back to where a checkpoint was when training goes on from it; TensorBoard if there."""

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torchcaps.files import WriteError, sync_folder

NUMBERS = ("loss", "reconstruction", "accuracy", "balanced_accuracy", "lr", "examples_per_second")


class MetricsFile:
    """``metrics.jsonl`` of a run folder, open for the lines to come; ``kept`` bytes of it stay, of this ``sha256``."""

    def __init__(self, folder: Path, kept: int, sha256: str, step: int, warn: Callable[[str], object]) -> None:
        self.path = folder / "metrics.jsonl"
        with ExitStack() as opened:
            try:
                mode = "r+b" if self.path.exists() else "x+b"
                self.file = opened.enter_context(self.path.open(mode, buffering=0))
                content = self.file.read(kept) or b""
                self.file.truncate(len(content))
                sync_folder(folder)
            except OSError as error:
                raise WriteError(self.path, error) from error
            opened.pop_all()
        self.digest = hashlib.sha256(content)
        if len(content) < kept or (sha256 and self.digest.hexdigest() != sha256):
            warn(f"{self.path} is not as the checkpoint knew it: lines of it were changed or lost")
        self.board = Board(folder, step, warn)

    def add(self, line: dict[str, Any]) -> None:
        """Write a line, and the same numbers for TensorBoard."""
        content = json.dumps(line).encode() + b"\n"
        self.digest.update(content)
        try:
            while content:  # a disk that is almost full takes a part
                content = content[self.file.write(content) :]
        except OSError as error:
            raise WriteError(self.path, error) from error
        self.board.add(line)

    def sync(self) -> tuple[int, str]:
        """See to it that all lines are on the disk; the length of the file, and its SHA-256."""
        try:
            os.fsync(self.file.fileno())
        except OSError as error:
            raise WriteError(self.path, error) from error
        return self.file.tell(), self.digest.hexdigest()

    def close(self) -> None:
        self.file.close()
        self.board.close()


class Board:
    """TensorBoard's events, if it is installed. It is a convenience: where it cannot write, training goes on."""

    def __init__(self, folder: Path, step: int, warn: Callable[[str], object]) -> None:
        self.writer: Any = None
        self.warn = warn
        if importlib.util.find_spec("tensorboard") is not None:
            self._attempt(lambda: self._open(folder, step))

    def _open(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def add(self, line: dict[str, Any]) -> None:
        if self.writer is not None:
            self._attempt(lambda: self._add(line))

    def _add(self, line: dict[str, Any]) -> None:
        for name in NUMBERS:
            if name in line:
                self.writer.add_scalar(f"{name}/{line['kind']}", line[name], line["step"])

    def close(self) -> None:
        if self.writer is not None:
            self._attempt(self.writer.close)

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # its writer raises what it likes, from a thread of its own
            self.writer = None
            self.warn(f"no events for TensorBoard from here on: {error}")
