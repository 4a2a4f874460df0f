"""How many examples are routed at a time, and what is kept for the backward pass.

The limits are measured by ``python -m benchmarks.fit_limits`` but for accelerators (docs/fast.md has the figures).
"""

import torch

from torchcaps.votes.paths import Path

# Numbers of the votes in a block on a CPU, by the size of a cache: 8 MB in single precision, so that a few such tensors
# fit in a third-level cache of 32 MB.
BLOCK_NUMBERS = {"cpu": 1 << 21}
# The same elsewhere, 256 MB: enough work to fill an accelerator. A guess: there was none to measure on.
BLOCK_NUMBERS_ELSEWHERE = 1 << 26
# Memory: closed forms keep more than a dozen numbers for each pair of capsules, over 1 GB in all for so many.
MOST_PAIRS_KEPT = 1 << 24
# Memory: the native kernels hold no votes, but up to two dozen numbers of each pair of capsules: 50 MB for so many
# pairs in a block.
NATIVE_BLOCK_PAIRS = 1 << 19
# Every block reads all weights: it has so many rows at least, to read them seldom, as long as its pairs take no more
# than 200 MB.
NATIVE_BLOCK_ROWS, MOST_NATIVE_BLOCK_PAIRS = 32, 1 << 21
# Memory: of so many pairs in all, autograd keeps everything, 150 MB. Of more, blocks are routed again when going back.
MOST_NATIVE_PAIRS_KEPT = 3 << 19


def count_examples_at_once(path: Path, device: torch.device, *, positions: int, pairs: int, numbers: int) -> int:
    """How many examples a block has: if there are enough, every thread gets as many.

    Args:
        path: the native kernels, or blocks.
        device: where the votes are.
        positions: positions of one example.
        pairs: its pairs of child and parent.
        numbers: numbers held for it while it is routed.

    Returns:
        One at least.
    """
    if path is Path.NATIVE:
        least = min(-(-NATIVE_BLOCK_ROWS // positions), MOST_NATIVE_BLOCK_PAIRS // pairs)
        return max(1, NATIVE_BLOCK_PAIRS // pairs, least)
    most = BLOCK_NUMBERS.get(device.type, BLOCK_NUMBERS_ELSEWHERE) / max(1, numbers)
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    return max(1, int(most)) if most < threads else threads * round(most / threads)


def keeps_native_pairs(pairs: int) -> bool:
    """Whether the native path may keep all that the backward pass needs of so many pairs."""
    return pairs <= MOST_NATIVE_PAIRS_KEPT


def keeps_closed_pairs(pairs: int) -> bool:
    """The same of closed forms, which keep pairs, never votes."""
    return pairs <= MOST_PAIRS_KEPT
