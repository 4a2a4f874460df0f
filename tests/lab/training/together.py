"""Train with several processes on this machine: run as a script by torchrun, or by itself to fork as many as told.

``python -m tests.lab.training.together FOLDER PROCESSES`` is quick, as torch is imported once; under torchrun, the
process of rank 1 kills itself in its first life, when the first checkpoint is there.
"""

import os
import signal
import socket
import sys
from pathlib import Path

import torch

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.training import TrainOptions, train
from torchcaps.lab.training.loop import Loop


def recipe() -> AnyRecipe:
    """Batches of 13 examples in two parts and one of 6: shares of 7 and 6, and of 3 and 3."""
    return tiny.recipe(batch_size=13, grad_accum_steps=2, ema=0.9)


def life(folder: Path) -> None:
    torch.set_num_threads(1)
    train(recipe(), folder, options=TrainOptions(every=1, device="cpu"))


def forked(folder: Path, processes: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = []
    for rank in range(processes):
        number = os.fork()
        if number == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            try:
                life(folder)
            except BaseException as error:
                print(rank, repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(number)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * processes


def dies_once(folder: Path) -> None:
    learn = Loop._learn

    def fatal(self: Loop, stop: bool) -> bool:
        first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if first_life and self.world.rank == 1 and self.position.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return learn(self, stop)

    Loop._learn = fatal
    life(folder)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if "TORCHELASTIC_RESTART_COUNT" in os.environ:
        dies_once(where / "restarted")
    else:
        for count in map(int, sys.argv[2:]):
            forked(where / f"of-{count}", count)
