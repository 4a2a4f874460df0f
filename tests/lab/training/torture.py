"""``make torture``: kills, faults and damaged files for some minutes, with counts at the end.

``python -m tests.lab.training.torture MINUTES SEED``. A third of the time goes to each kind. Whatever is done to a
run folder, resuming it has to give the same model byte for byte, or end with a message that names a file of it.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch

from tests.lab.training import faults, killing
from tests.lab.training.test_checkpoints import cut, empty, flip, remove
from torchcaps.lab.training import TrainOptions, train

LIVES = 12  # kills of one training at most


def life(folder: Path, overwrite: bool = False) -> None:
    """A training that saves after every step."""
    torch.set_num_threads(1)
    options = TrainOptions(every=1, keep_last=3, overwrite=overwrite)
    train(killing.recipe(), folder, resume=not overwrite, options=options)


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


class Torture:
    """The counts, and what failed."""

    def __init__(self, place: Path, minutes: float, seed: int) -> None:
        self.place, self.share, self.random = place, 20 * minutes, random.Random(seed)
        self.failed: list[str] = []

    def run(self) -> int:
        killing.finish(killing.child(lambda: life(self.place / "whole")))
        for kind in (self.kill, self.fail, self.damage):
            began = time.monotonic()
            print(f"{kind()} in {time.monotonic() - began:.0f} s", flush=True)
        print(f"{len(self.failed)} failed", *self.failed, sep="\n  ")
        return 1 if self.failed else 0

    def _until(self) -> Callable[[], bool]:
        end = time.monotonic() + self.share
        return lambda: time.monotonic() < end

    def kill(self) -> str:
        """SIGKILL at random moments, of trainings and of overwriting."""
        there_is_time, kills, runs = self._until(), 0, 0
        while there_is_time():
            folder, runs = self.place / f"killed-{runs}", runs + 1
            for number in range(LIVES):
                overwrite = number > 0 and self.random.random() < 0.2
                child = killing.child(lambda folder=folder, overwrite=overwrite: life(folder, overwrite))
                killing.after(self.random.randint(1, 8), folder / "metrics.jsonl", 5.0)
                time.sleep(self.random.uniform(0.0, 0.05))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                kills += 1
                if not there_is_time():
                    break
            self._expect_same(folder, f"after kills, {folder.name}")
        return f"{kills} kills of {runs} trainings"

    def fail(self) -> str:
        """An error of the disk in every file operation."""
        there_is_time, done, ended, audited = self._until(), 0, 0, faults.audit(self.place / "faults" / "new-whole")
        (self.place / "faults").mkdir()
        trainings = faults.FaultyTrainings(self.place / "faults")
        if unseen := faults.find_unseen(audited, trainings.operations["new"]):
            self.failed.append(f"the harness does not see every {', '.join(unseen)}")
        cases = trainings.cases
        self.random.shuffle(cases)
        for case in cases:
            if not there_is_time():
                break
            done += 1
            try:
                ended += bool(trainings.survive(*case))
            except AssertionError as problem:
                self.failed.append(str(problem))
        operations = sum(map(len, trainings.operations.values()))
        return (
            f"{done} of {len(cases)} faults ({operations} file operations, {len(faults.ERRORS)} errors): "
            f"{ended} ended with a message"
        )

    def damage(self) -> str:
        """Each file of a run, finished and not, damaged in four ways."""
        there_is_time, done, refused = self._until(), 0, 0
        files = [
            path for path in (self.place / "whole").rglob("*") if path.is_file() and "tensorboard" not in path.parts
        ]
        cases = list(product(files, (cut, flip, empty, remove), (True, False)))
        self.random.shuffle(cases)
        for path, harm, finished in cases:
            if not there_is_time():
                break
            folder, done = self.place / f"damaged-{done}", done + 1
            shutil.copytree(self.place / "whole", folder)
            if not finished:
                (folder / "record.json").unlink()
                (folder / "model.safetensors").unlink()
            target = folder / path.relative_to(self.place / "whole")
            if target.exists():
                harm(target)
            refused += self._expect_same(folder, f"{harm.__name__} {path.name}, {'' if finished else 'un'}finished")
            shutil.rmtree(folder)
        return f"{done} of {len(cases)} damaged files ({refused} refused with a message)"

    def _expect_same(self, folder: Path, what: str) -> bool:
        """That a resumed run has the same model; whether it was refused instead, by a message that names the folder."""
        reading, writing = os.pipe()

        def work() -> None:
            try:
                life(folder)
            except (ValueError, OSError) as error:
                os.write(writing, str(error).encode()[:4000])

        child = killing.child(work)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode()
        if code or (said and str(folder) not in said):
            self.failed.append(f"{what}: {said or f'exit code {code}'}")
        elif not said and model(folder) != model(self.place / "whole"):
            self.failed.append(f"{what}: another model")
        return bool(said)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        minutes, seed = (sys.argv[1:] + ["6", "0"][len(sys.argv) - 1 :])[:2]
        sys.exit(Torture(Path(made), float(minutes), int(seed)).run())
