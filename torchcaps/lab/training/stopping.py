"""Ends of training before its time: a person's Ctrl-C, a system's SIGTERM, numbers that are none."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from torch import Tensor

from torchcaps.files import encode_tensors, write_bytes
from torchcaps.lab.loaders import ModelBatch

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """Training was asked to stop; a checkpoint was saved, and the message says how to go on."""


class DivergedError(ValueError):
    """The loss or the gradient is not a finite number; the message says where the batch is, and what to try."""


class StopRequest:
    """Whether somebody asked for a stop."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.made:  # asked twice: no more politeness
            raise KeyboardInterrupt
        self.made = True
        print("\nstopping after this step; once more to stop at once", file=sys.stderr)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Signals to stop become a request while this lasts; where signals cannot be had (other threads), none come."""
    request = StopRequest()
    try:
        before = {number: signal.signal(number, request) for number in SIGNALS}
    except ValueError:
        yield request
        return
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def save_batch(folder: Path, step: int, batch: ModelBatch, indices: Tensor) -> Path:
    """Keep a batch that made trouble, for a person to look at."""
    tensors = {f"input.{number}": tensor for number, tensor in enumerate(batch.inputs)}
    tensors |= {"target": batch.target, "label": batch.label, "indices": indices}
    if batch.image is not None:
        tensors["image"] = batch.image
    path = folder / f"not-finite-step-{step:08d}.safetensors"
    write_bytes(path, encode_tensors({name: tensor.clone() for name, tensor in tensors.items()}))
    return path
