"""Memory that stays with the process from step to step.

A training step allocates and frees the same large tensors as the step before. The C library of Linux gives such memory
back to the system each time, and fresh memory costs a page fault for every 4 kB.
"""

import ctypes
import os

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt, as in malloc.h
LARGEST = 2**31 - 1  # an int: memory is given back beyond 2 GB alone
PAD = 1 << 26  # taken from the system at a time: fewer calls


def keep_freed_memory() -> bool:
    """Let GNU's C library keep freed memory for the rest of this process; whether it does.

    It is a setting of the whole process, so it is for commands to make and not for functions. Whoever has set
    ``MALLOC_TRIM_THRESHOLD_`` and the like in the environment has decided, and nothing is done.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return False
    settings = {MMAP_THRESHOLD: LARGEST, TRIM_THRESHOLD: LARGEST, TOP_PAD: PAD}
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings.items())
