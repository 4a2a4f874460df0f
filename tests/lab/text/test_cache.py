"""Computed once, found again, read in place; and whole whatever happened in between."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcaps.lab.text import EmbeddingCache, Encoder, OnTheFly
from torchcaps.lab.text import cache as module

TEXTS = ["the film is good", "dull", "a very very awful plot and not good", "it was fine", "dull"]


def said(*_: object) -> None:
    pass


def test_what_is_read_is_what_the_encoder_says(encoder: Encoder, tmp_path: Path) -> None:
    found = EmbeddingCache(encoder, tmp_path, "float32").embedded(TEXTS, said)
    fly = OnTheFly(encoder, TEXTS)
    chosen = torch.tensor([3, 0, 2, 4])
    for kept, made in zip(found.batch(chosen), fly.batch(chosen), strict=True):
        torch.testing.assert_close(kept, made, rtol=1e-4, atol=1e-5)
    assert found.lengths.tolist() == fly.lengths.tolist()


def test_half_precision(encoder: Encoder, tmp_path: Path) -> None:
    exact = EmbeddingCache(encoder, tmp_path, "float32").embedded(TEXTS, said)
    half = EmbeddingCache(encoder, tmp_path, "float16").embedded(TEXTS, said)
    assert half[0].dtype == torch.float16
    torch.testing.assert_close(half[0].float(), exact[0], rtol=1e-3, atol=1e-3)


def test_reading_does_not_copy(encoder: Encoder, tmp_path: Path) -> None:
    found = EmbeddingCache(encoder, tmp_path).embedded(TEXTS, said)
    start = found.shards[0].data_ptr()
    size = found.shards[0].numel() * found.shards[0].element_size()
    for index in range(len(TEXTS)):
        assert start <= found[index].data_ptr() < start + size
    # A change of the file shows in the view: it is the file's memory.
    path = next(path for path in found_files(tmp_path) if not path.name.endswith(".index.npy"))
    array = np.load(path, mmap_mode="r+")
    array[...] = 7.0
    array.flush()
    assert bool((found[0] == 7.0).all())


def found_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.npy"))


def test_nothing_is_computed_twice(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EmbeddingCache(encoder, tmp_path).fill(TEXTS[:3], said)
    asked: list[int] = []
    encode = type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda self, ids: asked.append(len(ids)) or encode(self, ids))
    cache = EmbeddingCache(encoder, tmp_path)
    assert cache.estimate(TEXTS).missing == 1
    cache.embedded(TEXTS, said)
    assert sum(asked) == 1
    cache.embedded(TEXTS, said)
    EmbeddingCache(encoder, tmp_path).embedded(TEXTS, said)
    assert sum(asked) == 1


def test_the_estimate_is_what_it_takes(encoder: Encoder, tmp_path: Path) -> None:
    cache = EmbeddingCache(encoder, tmp_path)
    planned = cache.estimate(TEXTS)
    assert not found_files(tmp_path)
    lines: list[str] = []
    cache.fill(TEXTS, lines.append)
    assert planned.bytes == cache.used()
    assert planned.tokens == cache.used() // (3 * 8 * 2)
    assert f"{planned.tokens:,} tokens" in lines[0]
    assert str(cache.estimate(TEXTS)) == "all 4 texts are in the cache"


def test_more_than_the_limit_is_refused_before_anything_is_done(encoder: Encoder, tmp_path: Path) -> None:
    cache = EmbeddingCache(encoder, tmp_path, limit_gb=1e-6)
    with pytest.raises(ValueError, match=r"above the limit of 1e-06 GB; raise the limit \(--text.limit-gb\)"):
        cache.fill(TEXTS, said)
    assert not found_files(tmp_path)


def test_another_encoder_has_another_folder(encoder: Encoder, decoder: Encoder, tmp_path: Path) -> None:
    assert EmbeddingCache(encoder, tmp_path).folder != EmbeddingCache(decoder, tmp_path).folder


@pytest.mark.parametrize("harm", ["cut", "swap", "no data", "rubbish"])
def test_a_damaged_shard_is_computed_again(encoder: Encoder, tmp_path: Path, harm: str) -> None:
    cache = EmbeddingCache(encoder, tmp_path)
    expected = cache.embedded(TEXTS, said).batch(torch.arange(5))[0]
    index, data = sorted(found_files(tmp_path), key=lambda path: path.stat().st_size)
    if harm == "cut":
        data.write_bytes(data.read_bytes()[:-10])
    elif harm == "swap":
        np.save(data, np.zeros((3, 3, 8), np.float16))
    elif harm == "no data":
        data.unlink()
    else:
        index.write_bytes(b"rubbish")
    again = EmbeddingCache(encoder, tmp_path)
    assert again.estimate(TEXTS).missing == 4
    assert torch.equal(again.embedded(TEXTS, said).batch(torch.arange(5))[0], expected)


def test_long_texts_are_told_of(encoder: Encoder, tmp_path: Path) -> None:
    lines: list[str] = []
    EmbeddingCache(encoder, tmp_path).fill(["very " * 40, "good"], lines.append)
    assert any("1 texts are longer than the 12 tokens" in line for line in lines)


SLOW = """
import sys, time
from pathlib import Path
from torchcaps.lab.text import EmbeddingCache, load_encoder
from torchcaps.lab.text import cache
cache.SHARD_BYTES = 1200
encoder = load_encoder(sys.argv[1])
encode = encoder.encode
encoder.encode = lambda ids: (time.sleep(0.02), encode(ids))[1]
texts = [" ".join(["good"] * (1 + n % 7) + ["film"] * (n // 7)) for n in range(56)]
EmbeddingCache(encoder, Path(sys.argv[2])).fill(texts)
"""


def test_killed_at_any_moment_it_goes_on(
    encoder: Encoder, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(["good"] * (1 + n % 7) + ["film"] * (n // 7)) for n in range(56)]
    command = [sys.executable, "-c", SLOW, str(encoder_folder), str(tmp_path / "killed")]
    child = subprocess.Popen(command, env=os.environ | {"TORCHCAPS_PLAIN": "1"}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").rglob("*.index.npy"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    monkeypatch.setattr(module, "SHARD_BYTES", 1200)
    cache = EmbeddingCache(encoder, tmp_path / "killed")
    missing = cache.estimate(texts).missing
    assert 0 < missing < 56
    resumed = cache.embedded(texts, said)
    whole = EmbeddingCache(encoder, tmp_path / "whole").embedded(texts, said)
    for index in range(56):
        torch.testing.assert_close(resumed[index], whole[index], rtol=2e-3, atol=2e-3)
