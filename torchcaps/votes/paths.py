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


# On an accelerator every operation is a launch: whatever fits goes in one piece. Autograd keeps up to twenty tensors of
# this many numbers.
PLAIN_NUMBERS_ELSEWHERE = 1 << 24

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
    return _find_cheapest(native, training, numbers, tensors[1].numel() if len(tensors) > 1 else 0)


@lru_cache(maxsize=256)  # small layers feel the comparison
def _find_cheapest(native: bool, training: bool, numbers: int, weights: int) -> Path:
    paths = [Path(name) for name in COSTS[name_task(native=native, training=training)]]
    return min(paths, key=lambda path: estimate_seconds(path, numbers, weights, training=training, native=native))


def name_task(*, native: bool, training: bool) -> str:
    """What ``COSTS`` calls it."""
    return ("training" if training else "inference") + ("" if native else " without kernels")


def estimate_seconds(path: Path, numbers: int, weights: int, *, training: bool, native: bool = True) -> float:
    """What a call costs by the model: so much for itself, for each number of the votes, and for each weight."""
    call, number, weight = COSTS[name_task(native=native, training=training)][path.value]
    return call + number * numbers + weight * weights
