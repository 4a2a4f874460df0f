"""What travels in an ONNX file besides the network: names of classes, preprocessing, where it comes from.

All of it is text, under the keys that model files have (``torchcaps.models.save``): ``format``; ``model``, name and
configuration in the registry; ``sha256`` of the weights; ``input_shape``; and of a trained model ``classes``,
``image_shape``, ``preprocessing`` and ``loss`` as JSON. ``range`` is that of pixels before preprocessing.
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from torchcaps.models.base import Training
from torchcaps.models.saving import describe, read_shape, read_training
from torchcaps.typed import show

FORMAT = "torchcaps-onnx-1"
LARGEST_SIDE = 1 << 20
FOR_TRAINING = ("flip", "brightness", "contrast", "rotation", "mixup")  # steps of preprocessing that evaluation skips


def describe_model(model: nn.Module, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The metadata of a model's file; ``extra`` goes beside it under the prefix ``torchcaps.``."""
    trained = getattr(model, "trained", None)
    if isinstance(trained, Training):
        kept = {name: value for name, value in trained.preprocessing.items() if name not in FOR_TRAINING}
        trained = replace(trained, preprocessing=kept)
    found = describe(model, trained) | {"format": FORMAT, "range": "[0, 1]"}
    found |= {f"torchcaps.{name}": text for name, text in (extra or {}).items()}
    return found


def read_format(metadata: Mapping[str, str], path: object) -> None:
    """Refuse a file that this package did not write, or a later version of it did."""
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path} has the format {show(metadata.get('format'))} in its metadata; expected {FORMAT!r}, as "
            "torchcaps.export.to_onnx writes it"
        )


def read_contents(metadata: Mapping[str, str], path: object) -> tuple[tuple[int, ...] | None, Training | None]:
    """The shape of one input and what the model was trained with, as far as the file says; it may be a stranger's."""
    read_format(metadata, path)
    return read_shape("input_shape", metadata, path, LARGEST_SIDE), read_training(metadata, path)
