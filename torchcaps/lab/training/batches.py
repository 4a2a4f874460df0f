"""The batches of all steps, prepared: each a function of the recipe's seed and the step, whoever asks and when."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from torchcaps.lab.loaders import Loader, ModelBatch, feed_at_epoch
from torchcaps.lab.training.order import Order, mixed

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
        batch = coming[1].result() if coming is not None and coming[0] == step else self._prepared(step)
        if self.pool is not None:
            self.next = (step + 1, self.pool.submit(self._prepared, step + 1))
        self.waited += time.perf_counter() - began
        return batch

    def _prepared(self, step: int) -> ModelBatch:
        generator = torch.Generator().manual_seed(mixed(self.seed, AUGMENTATION, step))
        batch = feed_at_epoch(self.loader, self.order.epoch(step)).batch(self.order.batch(step), generator)
        return batch.pinned() if self.pin else batch

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
