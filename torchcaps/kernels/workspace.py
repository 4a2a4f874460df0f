"""Buffers that one piece of work hands on to the next, and one call to the next."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

# What the process keeps between calls, in bytes. Fresh memory costs a page fault for every 4 kB, which takes some
# machines as long as the arithmetic on it.
MOST_KEPT = 1 << 27


class Workspace:
    """Buffers that one block hands on to the next, so that memory stays warm."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        self._made: dict[Hashable, Tensor] = {}

    def make_once(self, name: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What all blocks of one pass share: the first makes it."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def forget(self) -> None:
        """The pass is over: what its blocks shared may have changed before the next."""
        self._made.clear()

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        numbers = prod(shape)
        fitting = [
            place
            for place, buffer in enumerate(self._free)
            if buffer.numel() >= numbers and buffer.dtype == like.dtype and buffer.device == like.device
        ]
        if not fitting:
            return like.new_empty(numbers).view(shape)
        # The smallest that will do; of several the last one given back, which is still in the cache.
        best = min(reversed(fitting), key=lambda place: self._free[place].numel())
        return self._free.pop(best)[:numbers].view(shape)

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back, whole, whatever part of it was in use; only CPUs' buffers are kept."""
        # Elsewhere the allocator keeps memory warm, and it alone knows which stream still works on a buffer.
        if buffer.device.type == "cpu":
            self._free.append(buffer.new_empty(0).set_(buffer.untyped_storage()))

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers that are not in use."""
        return sum(buffer.nbytes for buffer in self._free)

    def shrink(self, most: int) -> None:
        """Let go of the largest buffers until no more than so many bytes are left."""
        self._free.sort(key=lambda buffer: buffer.nbytes)
        while self.nbytes > most:
            self._free.pop()


class _Pool:
    """The workspaces that no call is using, the last one used last: of the whole process, since threads that rest would
    keep theirs for nothing."""

    def __init__(self) -> None:
        self.idle: list[Workspace] = []
        self.lock = threading.Lock()

    def borrow(self) -> Workspace:
        with self.lock:
            return self.idle.pop() if self.idle else Workspace()

    def put_back(self, workspace: Workspace) -> None:
        with self.lock:
            workspace.shrink(MOST_KEPT)
            self.idle.append(workspace)
            while self.nbytes > MOST_KEPT:
                del self.idle[0]

    def release(self) -> None:
        with self.lock:
            self.idle.clear()

    @property
    def nbytes(self) -> int:
        return sum(workspace.nbytes for workspace in self.idle)


_pool = _Pool()
# A fork may find the lock taken by a thread that the child does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.__init__)


def release_workspaces() -> None:
    """Give the memory back that routing keeps for its next call: up to 128 MB for the whole process, and what the C
    library has kept of buffers that were freed before."""
    _pool.release()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc keeps freed memory of threads; other libraries have no such function
        trim(0)


@contextmanager
def borrow_workspace() -> Iterator[Workspace]:
    """The workspace that was used last, or a new one if all are in use."""
    if torch.is_inference_mode_enabled():  # what is made here cannot be written to outside
        yield Workspace()
        return
    workspace = _pool.borrow()
    try:
        yield workspace
    finally:
        workspace.forget()
        _pool.put_back(workspace)
