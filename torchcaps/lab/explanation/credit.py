"""Which tokens made the class: the signed credit of vector routings (Heinsen 2022), from end to end of a stack.

A layer's credit φ_ij weighs the vote of child i for parent j. Through a stack the credits multiply, so that every class
credits every token, at every depth of the language model, with a number above or below 0. Votes have signs of their
own, so credit alone is no evidence that a word makes a class more probable: that is what the probabilities without a
word are for.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from torchcaps.models import Model
from torchcaps.models.base import device_of

TINY = 1e-12


@runtime_checkable
class GivesCredit(Protocol):
    """A model of texts that says which token, at which depth, each class credits with what."""

    def credit(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class CreditView:
    """One text as a network with credit saw it."""

    pieces: tuple[str, ...]  # the tokens, as they read
    credit: Float[Tensor, "token depth k"]  # signed, as a share of all credit that the class gave, of either sign
    probability: dict[str, float]  # of each class
    text: str = ""  # as it was given
    label: str = ""  # what the data say it is, where they do
    without: Float[Tensor, "word k"] | None = None  # probability of each class if the tokens of a word are masked


@torch.no_grad()
def credit_shares(
    model: Model, states: Float[Tensor, "n token depth width"], mask: Float[Tensor, "n token"]
) -> Float[Tensor, "n token depth k"]:
    """What each class credits each token with, at each depth: shares that sum to 1 without their signs; 0 for
    padding."""
    if not isinstance(model, GivesCredit):
        raise ValueError(f"{type(model).__name__} gives no credit; give a network of vector routings")
    place = device_of(model.eval())
    credit = model.credit(states.to(place), mask.to(place)).cpu()
    return credit / credit.abs().sum((1, 2), keepdim=True).clamp_min(TINY)
