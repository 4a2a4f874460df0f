"""Memory that a training keeps: in processes of their own, since the setting is for good."""

import os
import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from torchcaps.lab.training.memory import keep_freed_memory
kept = {call}
for _ in range(10):
    torch.ones(1 << 24)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of GNU's C library")


def count_faults(call: str, **variables: str) -> tuple[str, int]:
    """What the call returned, and the page faults of ten tensors of 64 MB, one after the other."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", COUNT.format(call=call)]
    found = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=True)
    kept, faults = found.stdout.split()
    return kept, int(faults)


@needs_glibc
def test_freed_memory_is_used_again():
    """A tensor has 16,384 pages of 4 kB; system-wide huge pages would leave nothing to count."""
    before, after = count_faults("None"), count_faults("keep_freed_memory()")
    if before[1] < 10 * 16_384:
        pytest.skip("this system has huge pages for large tensors")
    assert after[0] == "True"
    assert after[1] < before[1] - 8 * 16_384


def test_whoever_has_set_the_environment_has_decided():
    assert count_faults("keep_freed_memory()", MALLOC_ARENA_MAX="4")[0] == "False"
