"""What every model is, what it returns, and its entry in the registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules


class Prediction(NamedTuple):
    """What a model returns.

    Args:
        logits: a logit for each class.
        capsules: the class capsules; ``None`` from networks without capsules.
        reconstruction: images of the decoder, if they were asked for.

    Shape:
        - logits: ``(b, k)``; capsules: poses ``(b, k, d)``.
        - reconstruction: ``(b, channel, row, column)``, or ``(b, m, channel, row, column)`` of several capsules.
    """

    logits: Float[Tensor, "b k"]
    capsules: Capsules | None = None
    reconstruction: Float[Tensor, "b ..."] | None = None


@dataclass(frozen=True)
class Origin:
    """Where a model comes from.

    Args:
        name: its name in the registry.
        config: its whole configuration.
    """

    name: str
    config: Any


@dataclass(frozen=True)
class Training:
    """What a trained model needs besides its weights.

    Args:
        class_names: names of its classes, in the order of its logits.
        image_shape: shape of its images before preprocessing.
        preprocessing: those fields of its preprocessing that are not the default.
        loss: those fields of its loss that are not the default.
    """

    class_names: tuple[str, ...]
    image_shape: tuple[int, ...] | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    loss: Mapping[str, Any] | None = None


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are, and its inputs have to be."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


class Model(nn.Module):
    """Inputs to a ``Prediction``. ``image`` is the shape of one input that it was built for; ``origin`` is there if the
    registry made it; ``untrained`` names parts that its training left as they were made."""

    image: tuple[int, ...]
    origin: Origin | None = None
    untrained: tuple[str, ...] = ()
    trained: Training | None = None
    """What the model was trained with, if it was."""
    preprocess: Callable[[Tensor], Tensor] | None = None
    """From images (0 to 1) to inputs, if ``torchcaps.load`` made the model."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the logits, if the model was trained."""
        return None if self.trained is None else self.trained.class_names


def mark_untrained(model: Model, reconstruction: float) -> None:
    """Note on a model what its training left as it was made: the decoder, without a weight for the reconstruction
    loss."""
    has_decoder = getattr(model, "decoder", None) is not None
    model.untrained = ("decoder",) if has_decoder and not reconstruction else ()


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
