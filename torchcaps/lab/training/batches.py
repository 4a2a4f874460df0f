"""The batches of all steps: which examples come when, and the batches made of them.

Both are functions of seed and step alone, so that training can go on from any step.
"""

import hashlib
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from jaxtyping import Int
from torch import Tensor

from torchcaps.data.counter import Counter
from torchcaps.lab.loaders import Loader, ModelBatch, loader_at_epoch

ROUNDS = 6
BLOCK = 1 << 16
MOST_WRITTEN_OUT = 1 << 20  # examples


class Shuffle:
    """A random order of ``0 … length - 1``, written out only where it is short: datasets may have tens of millions of
    examples.

    A Feistel network over as many bits as the length needs is a permutation whatever its round function; what falls
    outside the length is put through again until it falls inside.

    >>> sorted(Shuffle(5, seed=1).at(torch.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self.half = max(1, ((length - 1).bit_length() + 1) // 2)  # bits of each half
        self.draws = Counter(seed)
        self.kept: tuple[int, Tensor] | None = None
        self.written: Tensor | None = None

    def at(self, places: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """What stands at these places of the order."""
        if self.length > MOST_WRITTEN_OUT:
            return self._compute(places)
        if self.written is None:
            self.written = self._compute(torch.arange(self.length))
        return self.written[places]

    def _compute(self, places: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        found = self._once(places)
        outside = (found >= self.length).nonzero()[:, 0]
        while len(outside):
            found[outside] = self._once(found[outside])
            outside = outside[found[outside] >= self.length]
        return found

    def stretch(self, start: int, stop: int) -> Int[Tensor, "n"]:
        """What stands from ``start`` up to ``stop``; made in blocks, as a loop asks for one stretch after the other."""
        first = start // BLOCK * BLOCK
        if self.kept is None or self.kept[0] != first or stop > first + len(self.kept[1]):
            last = max(stop, min(first + BLOCK, self.length))
            self.kept = (first, self.at(torch.arange(first, last)))
        return self.kept[1][start - first : stop - first]

    def _once(self, places: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        mask = (1 << self.half) - 1
        left, right = places >> self.half, places & mask
        for number in range(ROUNDS):
            left, right = right, left ^ (self.draws.bits(right, number) & mask)
        return (left << self.half) | right


def mix_seeds(*numbers: int) -> int:
    """One seed from several numbers: (seed, epoch), (seed, step, rank); other numbers give another seed.

    >>> mix_seeds(0, 1) == mix_seeds(0, 1), mix_seeds(0, 1) == mix_seeds(1, 0)
    (True, False)
    """
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # what torch takes for a seed


GROUP = 50
"""Batches that are filled together where examples have lengths."""


class Order:
    """The batches of a whole training: every epoch all examples in a new order, the last batch of it smaller if need
    be. A last batch of a single example is left out: it has no statistics for a batch norm.

    Where examples have ``lengths``, those of a batch are of about the same length, as all are padded to the longest:
    the examples of ``GROUP`` batches are sorted before they are divided up, and the batches come in random order.
    """

    def __init__(self, examples: int, batch_size: int, seed: int, lengths: Int[Tensor, "n"] | None = None) -> None:
        if examples < 1:
            raise ValueError("there are no examples to train on; lower data.val_size or raise data.limit")
        if batch_size < 1:
            raise ValueError(f"a batch has at least one example; got batch_size={batch_size}")
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        left = examples % batch_size
        self.steps_per_epoch = max(1, examples // batch_size + (left > 1))
        self.lengths = lengths
        self.shuffle: tuple[int, Shuffle] | None = None
        self.group: tuple[int, list[Tensor]] | None = None

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def seen(self, step: int) -> int:
        """Examples of all steps before this one."""
        epochs, steps = divmod(step, self.steps_per_epoch)
        each = min(self.examples, self.steps_per_epoch * self.batch_size)
        return epochs * each + min(each, steps * self.batch_size)

    def batch(self, step: int) -> Int[Tensor, "n"]:
        """Numbers of the examples of one step."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self.shuffle is None or self.shuffle[0] != epoch:
            self.shuffle = (epoch, Shuffle(self.examples, mix_seeds(self.seed, epoch)))
        if self.lengths is not None:
            return self._group(step - place, place)
        return self._stretch(place, place + 1)

    def _stretch(self, first: int, last: int) -> Int[Tensor, "n"]:
        """The examples from one batch of the epoch up to another."""
        assert self.shuffle is not None
        return self.shuffle[1].stretch(first * self.batch_size, min(last * self.batch_size, self.examples))

    def _group(self, epoch_start: int, place: int) -> Int[Tensor, "n"]:
        """One of the batches whose examples were sorted by length together."""
        assert self.lengths is not None
        first = place // GROUP * GROUP
        if self.group is None or self.group[0] != epoch_start + first:
            chosen = self._stretch(first, min(first + GROUP, self.steps_per_epoch))
            batches = list(chosen[self.lengths[chosen].argsort(stable=True)].split(self.batch_size))
            full = sum(len(batch) == self.batch_size for batch in batches)  # a smaller one stays the last
            mixed_up = Shuffle(full, mix_seeds(self.seed, epoch_start + first, GROUP)).at(torch.arange(full)).tolist()
            self.group = (epoch_start + first, [batches[number] for number in mixed_up] + batches[full:])
        return self.group[1][place - first]


AUGMENTATION = 1  # keeps these random numbers apart from those of the order


class Batches:
    """Prepared batches by step. ``ahead`` prepares the next one in a thread meanwhile: worth it where the model's work
    is on another device; on CPUs they would take the cores from each other. ``pin`` puts them into memory that a GPU
    reads by itself. ``waited`` is the time spent waiting.

    Every process prepares whole batches and takes its share afterwards: mixup needs partners, and any number of
    processes must see the same examples.
    """

    def __init__(self, loader: Loader, order: Order, seed: int, ahead: bool = False, pin: bool = False) -> None:
        self.loader, self.order, self.seed, self.pin = loader, order, seed, pin
        self.pool = ThreadPoolExecutor(1, "batches") if ahead else None
        self.next: tuple[int, Future[ModelBatch]] | None = None
        self.waited = 0.0

    def at(self, step: int) -> ModelBatch:
        """The whole batch of a step."""
        began = time.perf_counter()
        coming = self.next
        batch = coming[1].result() if coming is not None and coming[0] == step else self._prepare(step)
        if self.pool is not None:
            self.next = (step + 1, self.pool.submit(self._prepare, step + 1))
        self.waited += time.perf_counter() - began
        return batch

    def _prepare(self, step: int) -> ModelBatch:
        generator = torch.Generator().manual_seed(mix_seeds(self.seed, AUGMENTATION, step))
        batch = loader_at_epoch(self.loader, self.order.epoch(step)).batch(self.order.batch(step), generator)
        return batch.pin() if self.pin else batch

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
