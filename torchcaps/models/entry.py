"""What a name of the registry stands for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchcaps.models.base import Model

Smallest = Mapping[str, Any]
"""Fields of a configuration, with their values at the smallest scale."""


@dataclass(frozen=True)
class ModelEntry:
    """A model: how to build it, from which configuration, and what its paper says about its size.

    Args:
        about: what it is, in a line.
        build: a function from its configuration to the model.
        config: its configuration, a frozen dataclass with everything that can be chosen; overrides replace its fields,
            its ``input_shape`` is the shape of one input, and its class's ``smallest`` are the fields that change in a
            network of the same layers with a fraction of their width, for two steps.
        paper: parameters as the paper prints them (``"8.2 M"``), empty where it prints none.
        why: what explains a difference to ours.
    """

    about: str
    build: Callable[[Any], Model]
    config: Any
    paper: str = ""
    why: str = ""

    @property
    def smallest(self) -> Smallest:
        """What changes at the smallest scale."""
        return self.config.smallest


ImageSize = int | tuple[int, int]


def image_shape(channels: int, image_size: ImageSize) -> tuple[int, int, int]:
    """``(channel, row, column)`` of images whose size is one number, or rows and columns."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if channels < 1 or height < 1 or width < 1:
        raise ValueError(f"images of {channels} channels and {height}×{width} pixels; all must be at least 1")
    return channels, height, width
