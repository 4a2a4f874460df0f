"""Hidden states on disk: computed once, read without copying.

A cache is a folder for each encoder (named by its fingerprint) and number type, with shards in it: ``NAME.npy`` holds
the hidden states of many texts one after the other, ``NAME.index.npy`` says which text is where. A text is found by
the hash of its characters. A shard counts once its index is there, which is written last and in one move: whatever
interrupts the work, all whole shards stay and the next run goes on from them.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcaps.data.files import cache_dir
from torchcaps.files import replace_file
from torchcaps.lab.text.encoders import Encoder, check_texts

Precision = Literal["float16", "float32"]
Say = Callable[[str], object]

SHARD_BYTES = 64 << 20
BATCH_TOKENS = 2048
PLACE = np.dtype([("key", "S32"), ("start", "<i8"), ("length", "<i4")])
GIGA = 1e9


@dataclass(frozen=True)
class Estimate:
    """What is still to be computed, and what it will take on disk."""

    texts: int  # of which
    missing: int  # are not in the cache yet
    tokens: int  # of those that are missing
    bytes: int
    shortened: int  # texts longer than the encoder's window

    def __str__(self) -> str:
        if not self.missing:
            return f"all {self.texts:,} texts are in the cache"
        return (
            f"{self.missing:,} of {self.texts:,} texts to embed: {self.tokens:,} tokens, "
            f"{self.bytes / GIGA:.2f} GB on disk"
        )


class EmbeddingCache:
    """The hidden states of texts by one encoder, kept in ``folder`` (the user's cache directory if left out)."""

    def __init__(
        self,
        encoder: Encoder,
        folder: Path | None = None,
        precision: Precision = "float16",
        limit_gb: float = 10.0,
    ) -> None:
        if precision not in ("float16", "float32"):
            raise ValueError(f"embeddings are kept as 'float16' or 'float32'; got {precision!r}")
        self.encoder, self.precision, self.limit = encoder, np.dtype(precision), limit_gb * GIGA
        root = cache_dir() / "embeddings" if folder is None else folder
        self.folder = root / f"{encoder.fingerprint[:32]}-{precision}"
        self.places: dict[bytes, tuple[int, int, int]] = {}  # of each text: shard, first token, number of tokens
        self.shards: list[Tensor] = []
        self._names: set[str] = set()
        self._read_shards()

    @property
    def token_bytes(self) -> int:
        return self.encoder.depth * self.encoder.width * self.precision.itemsize

    def used(self) -> int:
        """Bytes of all shards."""
        return sum(shard.numel() * shard.element_size() for shard in self.shards)

    def estimate(self, texts: Sequence[str]) -> Estimate:
        """What embedding these texts would take, without doing it."""
        missing = self._missing(texts)
        tokenized = self.encoder.tokenize(missing) if missing else None
        tokens = sum(map(len, tokenized.ids)) if tokenized else 0
        shortened = len(tokenized.shortened) if tokenized else 0
        return Estimate(len(set(texts)), len(missing), tokens, tokens * self.token_bytes, shortened)

    def fill(self, texts: Sequence[str], say: Say = print) -> None:
        """Compute what is missing, shortest texts first, after saying how much it will be."""
        missing = self._missing(texts)
        if not missing:
            return
        ids, shortened = self.encoder.tokenize(missing)
        tokens = sum(map(len, ids))
        planned = Estimate(len(set(texts)), len(missing), tokens, tokens * self.token_bytes, len(shortened))
        say(f"{self.encoder.name}: {planned} (limit {self.limit / GIGA:g} GB), in {self.folder}")
        self._check_room(planned)
        if shortened:
            say(
                f"note: {len(shortened):,} texts are longer than the {self.encoder.window} tokens that "
                f"{self.encoder.name} reads; their ends are cut off"
            )
        order = sorted(range(len(missing)), key=lambda place: len(ids[place]))
        started, done = time.monotonic(), 0
        told = started
        for shard in _shards([len(ids[place]) for place in order], SHARD_BYTES // self.token_bytes):
            chosen = [order[place] for place in shard]
            self._write([missing[place] for place in chosen], [ids[place] for place in chosen])
            done += sum(len(ids[place]) for place in chosen)
            if (now := time.monotonic()) - told > 10 or done == tokens:
                left = (now - started) / done * (tokens - done)
                say(f"embedded {done / tokens:.0%} at {done / (now - started):,.0f} tokens/s, {left:.0f} s left")
                told = now

    def embedded(self, texts: Sequence[str], say: Say = print) -> "Embedded":
        """The hidden states of these texts, computed where they are missing."""
        self.fill(texts, say)
        return Embedded(self.shards, [self.places[_key(text)] for text in texts])

    def _missing(self, texts: Sequence[str]) -> list[str]:
        check_texts(texts)
        return [text for text in dict.fromkeys(texts) if _key(text) not in self.places]

    def _check_room(self, planned: Estimate) -> None:
        after = self.used() + planned.bytes
        half = " or precision float16 (half of it)," if self.precision.itemsize == 4 else ""
        if after > self.limit:
            raise ValueError(
                f"the embeddings would take {after / GIGA:.2f} GB of disk, above the limit of {self.limit / GIGA:g} "
                f"GB; raise the limit (--text.limit-gb),{half} take fewer examples (--data.limit) or embed on the fly "
                f"(--text.no-keep)"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if planned.bytes > 0.95 * free:
            raise ValueError(
                f"the embeddings would take {planned.bytes / GIGA:.2f} GB and {self.folder} has {free / GIGA:.2f} GB "
                f"left; name another place (--text.folder),{half} or embed on the fly (--text.no-keep)"
            )

    def _write(self, texts: list[str], ids: list[list[int]]) -> None:
        """One shard: the data, then the index, each by one move from a temporary name of this process."""
        lengths = [len(found) for found in ids]
        index = np.zeros(len(texts), PLACE)
        index["key"], index["length"] = [_key(text) for text in texts], lengths
        index["start"] = np.cumsum([0, *lengths[:-1]])
        states = np.empty((sum(lengths), self.encoder.depth, self.encoder.width), self.precision)
        for batch in _shards(lengths, BATCH_TOKENS):
            hidden = self.encoder.encode([ids[place] for place in batch])
            first = int(index["start"][batch[0]])
            # Texts of a batch lie one after the other in the shard, so what the mask leaves is already in its order.
            rows = _convert(hidden.states[hidden.mask], self.precision)
            states[first : first + len(rows)] = rows
        name = hashlib.sha256(index["key"].tobytes()).hexdigest()[:16]
        _save(self.folder / f"{name}.npy", states)
        _save(self.folder / f"{name}.index.npy", index)
        self._add(name)

    def _read_shards(self) -> None:
        for path in sorted(self.folder.glob("*.index.npy")):
            self._add(path.name.removesuffix(".index.npy"))

    def _add(self, name: str) -> None:
        """Take a shard in; one that is damaged is left out, so that its texts are computed again."""
        if name in self._names:
            return
        try:
            index = np.load(self.folder / f"{name}.index.npy", allow_pickle=False)
            # Copy on write: torch wants memory that may be written to; nothing ever does.
            states = np.load(self.folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return
        expected = (int(index["length"].sum()) if index.dtype == PLACE else -1, self.encoder.depth, self.encoder.width)
        if states.shape != expected or states.dtype != self.precision:
            return
        self._names.add(name)
        number = len(self.shards)
        self.shards.append(torch.from_numpy(states))
        for key, start, length in zip(
            index["key"].tolist(), index["start"].tolist(), index["length"].tolist(), strict=True
        ):
            self.places[key] = (number, start, length)


class Embedded:
    """The hidden states of numbered texts, as views of the files they are in."""

    def __init__(self, shards: list[Tensor], places: list[tuple[int, int, int]]) -> None:
        self.shards, self.places = shards, places
        self.lengths = torch.tensor([length for _, _, length in places])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Float[Tensor, "token depth width"]:
        """One text's hidden states: memory of the file itself, not a copy."""
        shard, start, length = self.places[index]
        return self.shards[shard][start : start + length]

    def batch(self, indices: Int[Tensor, "n"]) -> tuple[Float[Tensor, "n token depth width"], Float[Tensor, "n token"]]:
        """Texts side by side, padded at the end with zeros, and their mask: 1 for tokens, 0 for padding."""
        found = [self[index] for index in indices.tolist()]
        longest = max(len(states) for states in found)
        batch = torch.zeros(len(found), longest, *found[0].shape[1:])
        mask = torch.zeros(len(found), longest)
        for row, states in enumerate(found):
            batch[row, : len(states)] = states
            mask[row, : len(states)] = 1.0
        return batch, mask


def _key(text: str) -> bytes:
    # In hexadecimal: numpy cuts zero bytes off the end of a string.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()


def _shards(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Neighbors in groups that, padded to the longest, have at most so many tokens; always one at least."""
    group: list[int] = []
    longest = 0
    for place, length in enumerate(lengths):
        if group and max(longest, length) * (len(group) + 1) > most:
            yield group
            group, longest = [], 0
        group.append(place)
        longest = max(longest, length)
    if group:
        yield group


def _convert(rows: Tensor, precision: np.dtype) -> np.ndarray:
    """As the number type of the cache; what float16 cannot hold becomes its largest number rather than infinite."""
    if precision == np.float16:
        most = torch.finfo(torch.float16).max
        rows = rows.clamp(-most, most)
    return rows.cpu().numpy().astype(precision)


def _save(path: Path, array: np.ndarray) -> None:
    with replace_file(path) as file:
        np.save(file, array, allow_pickle=False)
