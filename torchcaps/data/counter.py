"""Random numbers by address: what is drawn depends on (seed, stream, index) alone, never on what was drawn before.

A generated example must be the same whatever batch it comes in, so its numbers cannot come from a generator with a
state. They are a hash of where they stand: SplitMix64's finalizer (Steele, Lea and Flood 2014) over the index,
keyed by seed and stream, on whole tensors of indices at once.
"""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _signed(word: int) -> int:
    """The 64 bits of ``word`` as torch's int64 holds them."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _shift_right(word: Int[Tensor, "*n"], by: int) -> Int[Tensor, "*n"]:
    # torch's >> keeps the sign bit; the hash wants zeros to come in.
    return (word >> by) & ((1 << (64 - by)) - 1)


def _finalize(word: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    word = (word ^ _shift_right(word, 30)) * _signed(0xBF58476D1CE4E5B9)
    word = (word ^ _shift_right(word, 27)) * _signed(0x94D049BB133111EB)
    return word ^ _shift_right(word, 31)


@lru_cache(maxsize=1024)
def _key(seed: int, stream: int) -> int:
    """What the indices of a stream are hashed with."""
    key = _finalize(torch.tensor(_signed(seed), dtype=torch.int64, device="cpu") + _signed(_GOLDEN))
    return int(_finalize(key + _signed((stream + 1) * _GOLDEN)))


class Counter:
    """The numbers of one seed. Each ``stream`` is a separate, independent sequence over the indices.

    >>> draws = Counter(seed=1)
    >>> whole = draws.below(torch.arange(100), stream=0, bound=9)
    >>> bool((draws.below(torch.tensor([42]), stream=0, bound=9) == whole[42]).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def bits(self, index: Int[Tensor, "*n"], stream: int) -> Int[Tensor, "*n"]:
        """64 random bits for each index."""
        key = _key(self.seed, stream)
        return _finalize(_finalize(index.to(torch.int64) * _signed(_GOLDEN) + key) + 1)

    def uniform(
        self, index: Int[Tensor, "*n"], stream: int, low: float = 0.0, high: float = 1.0
    ) -> Float[Tensor, "*n"]:
        """Even over [low, high), in float64 so that later arithmetic rounds the same everywhere."""
        return low + (high - low) * (_shift_right(self.bits(index, stream), 11).to(torch.float64) * 2.0**-53)

    def below(self, index: Int[Tensor, "*n"], stream: int, bound: int | Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Whole numbers from 0 to ``bound - 1``; the remainder's bias is below ``bound / 2**63``."""
        return _shift_right(self.bits(index, stream), 1) % bound
