"""What modules share about their parameters: where they are made, and how they are drawn anew."""

from typing import TypedDict

import torch
from torch import nn

Device = torch.device | str | int | None
"""Where the parameters of a module are made: ``None`` is PyTorch's default device."""


class Factory(TypedDict):
    """Device and number type of parameters, as PyTorch's own modules take them."""

    device: Device
    dtype: torch.dtype | None


class Resettable(nn.Module):
    """A module that draws its parameters anew: those of the modules inside it, then what ``_draw`` draws in a way of
    its own, as the constructor does."""

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)
        self._draw()

    def _draw(self) -> None:
        """Draw what the modules inside would draw in another way; nothing unless a subclass says so."""


def reset_children(module: nn.Module) -> None:
    """Draw anew the parameters of all modules inside this one.

    >>> linear = nn.Linear(2, 1)
    >>> before = linear.weight.clone()
    >>> reset_children(nn.Sequential(linear, nn.ReLU()))
    >>> bool((linear.weight == before).any())
    False
    """
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            reset_children(child)
