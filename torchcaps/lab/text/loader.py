"""Texts as batches for the training loop: hidden states, masks and labels, from the cache or computed on the fly."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from torchcaps.data.text import TextDataset
from torchcaps.data.transforms import mixup_embeddings
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.text.cache import Say
from torchcaps.lab.text.encoders import Encoder


@runtime_checkable
class States(Protocol):
    """Hidden states of numbered texts, padded, with a mask that is 1 for tokens and 0 for padding."""

    lengths: Int[Tensor, "n"]  # tokens of each text

    def __len__(self) -> int: ...

    def batch(
        self, indices: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n token depth width"], Float[Tensor, "n token"]]: ...


class OnTheFly:
    """Hidden states computed when they are asked for, and forgotten: no disk, but the encoder runs in every epoch."""

    def __init__(self, encoder: Encoder, texts: Sequence[str], say: Say = print) -> None:
        self.encoder = encoder
        self.ids, shortened = encoder.tokenize(texts)
        self.lengths = torch.tensor([len(ids) for ids in self.ids])
        if shortened:
            say(
                f"note: {len(shortened):,} texts are longer than the {encoder.window} tokens that {encoder.name} "
                "reads; their ends are cut off"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Int[Tensor, "n"]) -> tuple[Float[Tensor, "n token depth width"], Float[Tensor, "n token"]]:
        hidden = self.encoder.encode([self.ids[index] for index in indices.tolist()])
        # Out of inference mode: autograd may save a clone of these, not the tensors themselves.
        states = torch.where(hidden.mask[..., None, None], hidden.states, 0.0).clone()
        return states, hidden.mask.to(states.dtype)


class TextLoader:
    """Numbered texts as batches for a model: ``inputs`` are the hidden states and the mask.

    With a generator, and ``mixup`` above 0, embeddings, masks and labels are mixed (Heinsen 2019, §5).
    """

    def __init__(self, texts: TextDataset, states: States, mixup: float = 0.0) -> None:
        if len(texts) != len(states):
            raise ValueError(f"{len(texts)} texts but hidden states of {len(states)}")
        self.texts, self.states, self.mixup = texts, states, mixup
        self.classes, self.lengths = texts.classes, states.lengths

    def __len__(self) -> int:
        return len(self.texts)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch:
        states, mask = self.states.batch(indices)
        label = self.texts.labels[indices]
        if generator is None or self.mixup <= 0:
            return ModelBatch((states, mask), label, label)
        mixed, share, target = mixup_embeddings(
            states, mask, label, num_classes=len(self.classes), generator=generator, alpha=self.mixup
        )
        return ModelBatch((mixed, share), target, label)
