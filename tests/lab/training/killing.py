"""Train, kill, go on, kill again: run as a script with a folder, the number of kills and a seed.

Its children are copies of this process, in which torch is imported already, so that a life may be short.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe, Data
from torchcaps.lab.training import TrainOptions, train


def recipe() -> AnyRecipe:
    """Steps enough to be killed in."""
    return tiny.recipe(epochs=6.0, ema=0.9, clip=1.0, data=Data("mnist_sample", val_size=20, limit=45, test_limit=30))


def life(folder: Path) -> None:
    """A training that saves all the time, so that kills hit the saving too."""
    torch.set_num_threads(1)
    train(recipe(), folder, resume=True, options=TrainOptions(every=2))


def child(work: Callable[[], None]) -> int:
    number = os.fork()
    if number == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return number


def finish(number: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0


def after(changes: int, watched: Path, seconds: float = 60.0) -> None:
    """Wait until a file has changed its size so many times: clocks say little on a busy machine."""
    size, end = -1, time.monotonic() + seconds
    while changes and time.monotonic() < end:
        now = watched.stat().st_size if watched.exists() else -1
        size, changes = now, changes - (now != size)
        time.sleep(0.0005)


def main(folder: Path, kills: int, seed: int) -> None:
    finish(child(lambda: life(folder / "whole")))
    moments = random.Random(seed)
    for _ in range(kills):
        number = child(lambda: life(folder / "killed"))
        after(moments.randint(1, 8), folder / "killed" / "metrics.jsonl")
        time.sleep(moments.uniform(0.0, 0.02))
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        there = sorted(path.name for path in (folder / "killed" / "checkpoints").glob("*"))
        print("finished" if (folder / "killed" / "record.json").exists() else "unfinished", *there, flush=True)
    finish(child(lambda: life(folder / "killed")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
