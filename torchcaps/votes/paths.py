"""Which way a call goes: the one that costs least at its size, by costs that were measured (``costs.py``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache

from torch import Tensor

from torchcaps.kernels.library import take_kernels
from torchcaps.votes.blocks import VoteSource
from torchcaps.votes.costs import COSTS
from torchcaps.votes.pairs import PairSource


class Path(Enum):
    """The ways to route.

    ``PLAIN`` builds the votes of the whole batch and leaves the rest to autograd: what small layers want. ``NATIVE``
    makes the votes in registers, by kernels in C, whenever a primitive asks for them. ``BLOCKS`` goes through the batch
    in blocks that stay in cache, in PyTorch's operations.
    """

    PLAIN = "plain"
    NATIVE = "native"
    BLOCKS = "blocks"


# Limits besides the costs (docs/fast.md has all of them, and what was measured of them).
# On an accelerator every operation is a launch: whatever fits in memory goes in one piece. Autograd keeps up to twenty
# tensors of this many numbers, 1.3 GB in single precision. A guess: there was no accelerator to measure on.
PLAIN_NUMBERS_ELSEWHERE = 1 << 24
# On a CPU the plain way keeps all votes: a limit of memory, measured by benchmarks.fit_limits.
MOST_PLAIN_NUMBERS = 1 << 22
# The native kernels make the votes of so many types of children at a time, whether there are as many or not, on the
# processors that the costs were measured on; on others, of eight or four.
LANES = 16

_forced: Path | None = None


@contextmanager
def force_path(path: Path | None) -> Iterator[None]:
    """Every call takes this path if it can, whatever it costs: for tests and for measuring."""
    global _forced
    before, _forced = _forced, path
    try:
        yield
    finally:
        _forced = before


def is_forced() -> bool:
    """Whether somebody asks for one path, whatever it costs."""
    return _forced is not None


def choose_path(source: VoteSource, numbers: int, tensors: tuple[Tensor, ...], *, training: bool) -> Path:
    """The cheapest path for votes of so many numbers, made of these tensors."""
    # The plain way has kernels too, of few votes; votes that no kernel makes go by what paths cost without any.
    native = isinstance(source, PairSource) and take_kernels(tensors[0])
    if _forced is not None and (native or _forced is not Path.NATIVE):
        return _forced
    if source.closed_form:
        return Path.BLOCKS
    if not tensors[0].is_cpu:
        return Path.PLAIN if numbers <= PLAIN_NUMBERS_ELSEWHERE else Path.BLOCKS
    weight = tensors[1] if len(tensors) > 1 else None
    types = LANES if weight is None or not native else weight.shape[0]
    return find_cheapest(native, training, numbers, 0 if weight is None else weight.numel(), types)


@lru_cache(maxsize=256)  # small layers feel the comparison
def find_cheapest(native: bool, training: bool, numbers: int, weights: int, types: int = LANES) -> Path:
    """The cheapest path for votes of so many numbers by children of so many types."""
    paths = [Path(name) for name in COSTS[name_task(native=native, training=training)]]
    if numbers > MOST_PLAIN_NUMBERS:
        paths.remove(Path.PLAIN)
    padded = numbers * -(-types // LANES) * LANES // types

    def estimate(path: Path) -> float:
        made = padded if path is Path.NATIVE else numbers
        return estimate_seconds(path, made, weights, training=training, native=native)

    return min(paths, key=estimate)


def name_task(*, native: bool, training: bool) -> str:
    """What ``COSTS`` calls it."""
    return ("training" if training else "inference") + ("" if native else " without kernels")


def estimate_seconds(path: Path, numbers: int, weights: int, *, training: bool, native: bool = True) -> float:
    """What a call costs by the model: so much for itself, for each number of the votes, and for each weight."""
    call, number, weight = COSTS[name_task(native=native, training=training)][path.value]
    return call + number * numbers + weight * weights
