"""Random numbers by address: the same wherever they are asked for, and as even as random numbers should be."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps.data.counter import Counter

WORD = (1 << 64) - 1


def finalize(word: int) -> int:
    """SplitMix64's finalizer in Python's own integers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def reference_bits(seed: int, stream: int, index: int) -> int:
    golden = 0x9E3779B97F4A7C15
    key = finalize((seed + golden) & WORD)
    key = finalize((key + (stream + 1) * golden) & WORD)
    return finalize((finalize((index * golden + key) & WORD) + 1) & WORD)


@given(seed=st.integers(-(2**70), 2**70), stream=st.integers(0, 50), index=st.integers(0, 2**62))
@settings(max_examples=60, deadline=None)
def test_bits_are_splitmix_of_the_address(seed: int, stream: int, index: int) -> None:
    bits = int(Counter(seed).bits(torch.tensor([index]), stream)[0])
    assert bits & WORD == reference_bits(seed, stream, index)


@given(order=st.permutations(range(30)), seed=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_a_number_does_not_depend_on_its_company(order: list[int], seed: int) -> None:
    draws = Counter(seed)
    whole = draws.uniform(torch.arange(30), 3)
    assert torch.equal(draws.uniform(torch.tensor(order), 3), whole[order])
    assert torch.equal(draws.uniform(torch.tensor(order[:1]), 3), whole[order[:1]])


def test_even_and_independent() -> None:
    index = torch.arange(200_000)
    draws = Counter(7)
    counts = torch.bincount(draws.below(index, 0, 9), minlength=9)
    assert counts.sum() == 200_000
    # Nine classes of 22,222 each: a standard deviation is 141; five of them are a very rare event.
    assert (counts - 200_000 / 9).abs().max() < 5 * 141
    columns = torch.stack([draws.uniform(index, 0), draws.uniform(index, 1), Counter(8).uniform(index, 0)])
    assert (columns.mean(1) - 0.5).abs().max() < 5 * (1 / 12 / 200_000) ** 0.5
    apart = torch.corrcoef(columns) - torch.eye(3)
    assert apart.abs().max() < 0.012
    # Neighbors in the sequence do not follow each other either.
    assert torch.corrcoef(torch.stack([columns[0, 1:], columns[0, :-1]]))[0, 1].abs() < 0.012


def test_bounds_may_differ_by_index() -> None:
    bound = torch.arange(1, 1001)
    drawn = Counter(0).below(torch.arange(1000), 0, bound)
    assert (drawn >= 0).all()
    assert (drawn < bound).all()
