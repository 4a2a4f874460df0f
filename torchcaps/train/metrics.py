"""Metrics as lines of JSON, cut back to where a checkpoint was when training goes on from it; TensorBoard if there."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

NUMBERS = ("loss", "reconstruction", "accuracy", "balanced_accuracy", "lr", "examples_per_second")


class MetricsFile:
    """``metrics.jsonl`` of a run folder, open for the lines to come; ``kept`` is how many bytes of it stay."""

    def __init__(self, folder: Path, kept: int, step: int) -> None:
        path = folder / "metrics.jsonl"
        path.touch()
        os.truncate(path, min(kept, path.stat().st_size))
        self.file = path.open("ab")
        self.board = _board(folder, step)

    def add(self, line: dict[str, Any]) -> None:
        """Write a line, and the same numbers for TensorBoard."""
        self.file.write(json.dumps(line).encode() + b"\n")
        self.file.flush()
        if self.board is not None:
            for name in NUMBERS:
                if name in line:
                    self.board.add_scalar(f"{name}/{line['kind']}", line[name], line["step"])

    def sync(self) -> int:
        """See to it that all lines are on the disk; the length of the file."""
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def _board(folder: Path, step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step)
