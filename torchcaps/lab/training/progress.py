"""What training reports: lines of metrics in a file, TensorBoard events, and progress on the terminal."""

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from torchcaps.files import WriteError, sync_folder
from torchcaps.terminal import format_duration

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


SECONDS_BETWEEN_LINES = 10.0


class Reporter:
    """Says nothing: for processes that are not the main one, and for programs."""

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None: ...

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None: ...

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Lines(Reporter):
    """Lines without escape codes, for logs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.total, self.first, self.began, self.said = 1, 0, 0.0, 0.0
        self.unit = "images"

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None:
        self.unit = unit
        self.total, self.first, self.began, self.said = total, step, time.monotonic(), time.monotonic()
        self.say(about)

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None:
        now = time.monotonic()
        if now - self.said < SECONDS_BETWEEN_LINES:
            return
        self.said = now
        left = (now - self.began) / max(1, step - self.first) * (self.total - step)
        self.say(
            f"step {step:,} of {self.total:,}, epoch {epoch:.1f}: loss {loss:.4f}, accuracy {accuracy:.2%}, "
            f"{speed:,.0f} {self.unit}/s, {format_duration(left)} left"
        )

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")


class Bar(Lines):
    """A bar that moves, with what has been said above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]:.1f}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.1%}"),
            TextColumn("{task.fields[speed]:,.0f} {task.fields[unit]}/s"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self.task: TaskID | None = None

    def start(self, total: int, step: int, about: str, unit: str = "images") -> None:
        self.say(about)
        fields = {"loss": 0.0, "accuracy": 0.0, "speed": 0.0, "epoch": 0.0, "unit": unit}
        self.task = self.bar.add_task("", total=total, completed=step, **fields)
        self.bar.start()

    def update(self, step: int, loss: float, accuracy: float, speed: float, epoch: float) -> None:
        if self.task is not None:
            self.bar.update(self.task, completed=step, loss=loss, accuracy=accuracy, speed=speed, epoch=epoch)

    def stop(self) -> None:
        self.bar.stop()


def reporter(console: Console | None) -> Reporter:
    """What fits where the words go."""
    if console is None:
        return Reporter()
    return Bar(console) if console.is_terminal else Lines(console)
