"""What every model is, what it returns, and its entry in the registry."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
    record: Mapping[str, Any] | None = None
    """The record of the run that trained it, if that is known."""
    preprocess: Callable[[Tensor], Tensor] | None = None
    """From images (0 to 1) to inputs, if ``torchcaps.load`` made the model."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the logits, if the model was trained."""
        return None if self.trained is None else self.trained.class_names

    def save_pretrained(self, folder: str | Path, record: Mapping[str, Any] | None = None) -> None:
        """Write the model to a folder: weights as safetensors, its configuration, and a card in ``README.md``.

        Args:
            folder: the folder, made if it is not there.
            record: the record of its training (``record.json`` of a run folder) for the card; that of the model if
                left out.
        """
        _import_hub().save_folder(self, folder, record)

    def push_to_hub(
        self,
        name: str,
        record: Mapping[str, Any] | None = None,
        *,
        private: bool | None = None,
        token: str | None = None,
    ) -> str:
        """Upload the model to the Hugging Face hub, with the files of ``save_pretrained``.

        Args:
            name: its name there, ``"owner/model"``.
            record: the record of its training, for the card; that of the model if left out.
            private: whether only you can see it.
            token: your token for the hub; that of ``hf auth login`` if left out.

        Returns:
            The address of the commit.
        """
        return _import_hub().push_folder(self, name, record, private=private, token=token)

    @classmethod
    def from_pretrained(cls, name: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> Any:
        """The model of a folder or of a name on the hub, as ``torchcaps.models.from_pretrained``; one of another class
        is an error.

        Args:
            name: the folder, or ``"owner/model"`` on the hub.
            revision: branch, tag or commit on the hub; the newest if left out.
            token: your token for the hub; that of ``hf auth login`` if left out.

        Returns:
            The model.
        """
        model = _import_hub().load_folder(name, revision=revision, token=token)
        if not isinstance(model, cls):
            raise ValueError(f"{name} holds a {type(model).__name__}, not a {cls.__name__}; use Model.from_pretrained")
        return model


def from_pretrained(name: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> Model:
    """The model of a folder that ``save_pretrained`` wrote, or of a name on the Hugging Face hub; ready for evaluation.
    Both may come from a stranger: checksum, types and sizes are checked, and no code is run.

    Args:
        name: the folder, or ``"owner/model"`` on the hub.
        revision: branch, tag or commit on the hub; the newest if left out.
        token: your token for the hub; that of ``hf auth login`` if left out.

    Returns:
        The model.

    Example:
        >>> import tempfile
        >>> from torchcaps.models import create
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     create("quickstart-small", pretrained=True).save_pretrained(folder)
        ...     from_pretrained(folder).classes
        10
    """
    return Model.from_pretrained(name, revision=revision, token=token)


def _import_hub() -> Any:
    """The part that needs huggingface_hub, which few do."""
    return importlib.import_module("torchcaps.models.hub")


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
