"""Threads that give way on a busy machine.

Every parallel operation ends with its threads waiting for the last of them. GNU's OpenMP, which PyTorch comes with,
lets them spin for about a millisecond before they sleep. On a quiet machine that is the fastest way; where other
processes want the cores as well, threads that spin use up the time in which the thread that they wait for could have
run, and a step takes ten times as long. ``OMP_WAIT_POLICY=PASSIVE`` helps, but is read only when the library is loaded.

The library also stops spinning, at any time, while it manages more threads than there are processors. So a process
whose threads have to queue for processors starts a team with nothing to do, and ends it when the queues are gone.
Results are the same either way, to the bit. Whoever sets ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT`` has decided, and
nothing is done.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import torch

SECONDS = 0.25  # between two looks
# Seconds that threads queue for processors, of all threads together, in a second of the clock. On two cores they were
# at most 0.03 alone, and 0.6 to 1.2 beside one, two and three busy processes.
BUSY, QUIET = 0.2, 0.1


def find_openmp() -> ctypes.CDLL | None:
    """GNU's OpenMP library that PyTorch has loaded, or nothing."""
    for path in Path(torch.__file__).parent.glob("lib/libgomp*"):
        with suppress(OSError, AttributeError):  # not the one in use, or no such kind of library here
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            if hasattr(library, "GOMP_parallel"):
                return library
    return None


def read_delay() -> float | None:
    """Seconds for which this process's threads have been ready to run and had no processor; unknown except on Linux."""
    total = 0
    try:
        for task in os.scandir("/proc/self/task"):
            with suppress(FileNotFoundError, ProcessLookupError), open(f"{task.path}/schedstat") as file:
                total += int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total / 1e9


class Team(Protocol):
    """Threads that can be let go."""

    def end(self) -> None: ...


class IdleTeam:
    """Threads of OpenMP that do nothing, so many that there are more than processors; ended by :meth:`end`."""

    def __init__(self, openmp: ctypes.CDLL) -> None:
        self._over = threading.Event()
        began = threading.Event()
        size = max(2, len(os.sched_getaffinity(0)) - torch.get_num_threads() + 2)

        def rest() -> None:
            # The team's work, done once by each thread, is a function that asks for nothing and changes nothing.
            openmp.GOMP_parallel(openmp.omp_get_thread_num, None, size, 0)
            began.set()
            self._over.wait()  # when this thread ends, its team does

        self._leader = threading.Thread(target=rest, name="torchcaps idle team", daemon=True)
        self._leader.start()
        began.wait()

    def end(self) -> None:
        """Let the threads go."""
        self._over.set()
        self._leader.join()


class Waiting:
    """How threads wait: an idle team is kept while the machine is busy.

    Args:
        delay: reads how long threads have queued for processors, in seconds; ``None`` where that is unknown.
        clock: reads the time, in seconds.
        start: starts an idle team.
    """

    def __init__(
        self, delay: Callable[[], float | None], clock: Callable[[], float], start: Callable[[], Team]
    ) -> None:
        self._delay, self._clock, self._start = delay, clock, start
        self.begin()

    def begin(self) -> None:
        """Forget what was seen, and any team: a child of a process has none of its threads."""
        self._looking = threading.Lock()
        self._team: Team | None = None
        self._next = self._since = self._clock()
        self._waited: float | None = None  # not looked yet

    @property
    def gives_way(self) -> bool:
        return self._team is not None

    def look(self) -> None:
        """See whether the machine is busy, four times a second at most."""
        if self._clock() < self._next or not self._looking.acquire(blocking=False):
            return
        try:
            now, waited = self._clock(), self._delay()
            if waited is not None and self._waited is not None and now > self._since:
                self._decide((waited - self._waited) / (now - self._since))
            self._since, self._waited, self._next = now, waited, now + SECONDS
        finally:
            self._looking.release()

    def _decide(self, share: float) -> None:
        if self._team is None and share > BUSY:
            self._team = self._start()
        elif self._team is not None and share < QUIET:
            self._team.end()
            self._team = None


def _start_looking() -> Waiting | None:
    """Nothing where threads wait as somebody has said, or cannot be told to wait otherwise."""
    decided = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    openmp = None if decided or not hasattr(os, "sched_getaffinity") else find_openmp()
    return None if openmp is None else Waiting(read_delay, time.monotonic, lambda: IdleTeam(openmp))


_waiting = _start_looking()


if _waiting is not None:
    os.register_at_fork(after_in_child=_waiting.begin)


def give_way() -> None:
    """Have PyTorch's threads sleep rather than spin if the machine is busy; called at the beginning of long work."""
    if _waiting is not None and torch.get_num_threads() > 1:
        _waiting.look()
