"""Blocks side by side: each thread routes blocks of its own, so that no operation inside a block waits for a partner.

A block's operations are short. Splitting each over all cores would mean thousands of meetings of the threads, every one
of which waits for the slowest; a machine that has anything else to do then spends its time waiting.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")

_pools: dict[int, ThreadPoolExecutor] = {}
# A forked process has none of its parent's threads, so it starts without their pools.
os.register_at_fork(after_in_child=_pools.clear)


def over_blocks(work: Callable[[range], Result], blocks: int, device: torch.device) -> list[Result]:
    """``work`` on shares of the numbers ``0 … blocks - 1``, one share for each of torch's threads.

    The shares depend on the two numbers alone, so the results do not depend on which thread is first.
    """
    threads = min(torch.get_num_threads(), blocks)
    # What watches operations (counters, fake tensors) watches its own thread only.
    watched = torch._C._len_torch_dispatch_stack() > 0
    if threads < 2 or device.type != "cpu" or watched:
        return [work(range(blocks))]
    shares = [range(start, blocks, threads) for start in range(threads)]
    return list(_pool(threads).map(work, shares))


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="torchcaps")
        started = threading.Barrier(threads)

        def alone(_: int) -> None:
            torch.set_num_threads(1)  # of this thread
            started.wait()

        before = torch.get_num_threads()
        list(pool.map(alone, range(threads)))
        torch.set_num_threads(before)  # for threads that others may start
        _pools[threads] = pool
    return _pools[threads]
