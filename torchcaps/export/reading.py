"""ONNX files that ``to_onnx`` wrote, run by onnxruntime: nothing of the network's code is needed."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.export.metadata import read_contents
from torchcaps.export.runtime import LARGEST_FILE, open_session, run_session
from torchcaps.models.base import Model, Prediction, Training

LARGEST_INPUT = 1 << 28  # numbers in one input


class OnnxModel(Model):
    """A model in an ONNX file. It takes what the exported model took and returns the same ``Prediction``.

    ``class_names``, ``image`` and ``trained`` are those of the file; there are no parameters and no gradients.

    Args:
        session: the network in onnxruntime.
        image: shape of one input.
        trained: what the model was trained with, if the file says.
        source: what to call the file in messages.

    Shape:
        - inputs: ``(b, *image)``; of texts ``(b, n, *image[1:])`` with a mask ``(b, n)``.
        - result: logits ``(b, k)``, poses ``(b, k, d)``.

    Returns:
        The ``Prediction``.

    Example:
        >>> model = load("digits.onnx")  # doctest: +SKIP
        >>> model(torch.rand(64, 1, 28, 28)).logits.shape  # doctest: +SKIP
        torch.Size([64, 10])
    """

    def __init__(self, session: Any, image: tuple[int, ...], trained: Training | None, source: str) -> None:
        super().__init__()
        self.session, self.image, self.trained, self.source = session, image, trained, source
        self.outputs = tuple(output.name for output in session.get_outputs())

    def forward(
        self, inputs: Float[Tensor, "b ..."], mask: Bool[Tensor, "b n"] | Float[Tensor, "b n"] | None = None
    ) -> Prediction:
        """Logits and class capsules of a batch.

        Args:
            inputs: images, or hidden states of a sequence.
            mask: what of each sequence is there and what is padding; everything if left out.

        Returns:
            Logits, class capsules, and the image of the likeliest class if the file has the decoder.
        """
        found = self.run(inputs, mask)
        capsules = None
        if "poses" in found:
            score = torch.logit(found["presences"]) if "presences" in found else None
            capsules = Capsules(found["poses"], score)
        return Prediction(found["logits"], capsules, found.get("reconstruction"))

    def run(self, inputs: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """All that the file returns for a batch, by name: couplings too, if it was exported with them.

        Args:
            inputs: images, or hidden states of a sequence.
            mask: what of each sequence is there and what is padding; everything if left out.

        Returns:
            Tensors by the names of the file's outputs.
        """
        self._check(inputs)
        named = {"inputs": _as_array(inputs)}
        if len(self.session.get_inputs()) == 2:
            if mask is None:
                mask = torch.ones(inputs.shape[:2], dtype=torch.bool)
            if mask.dtype != torch.bool:
                raise ValueError(f"this file's mask says true or false for each token; got {mask.dtype}")
            named["mask"] = mask.cpu().numpy()
        elif mask is not None:
            raise ValueError(f"{self.source} takes images, which have no mask; leave it out")
        arrays = run_session(self.session, named, self.source)
        found = {name: torch.from_numpy(array) for name, array in zip(self.outputs, arrays, strict=True)}
        logits = found["logits"]
        if logits.ndim != 2 or len(logits) != len(inputs):
            raise ValueError(f"{self.source}: logits of shape {tuple(logits.shape)} for {len(inputs)} inputs")
        if self.trained is not None and logits.shape[1] != len(self.trained.class_names):
            raise ValueError(f"{self.source}: {logits.shape[1]} logits for {len(self.trained.class_names)} classes")
        return found

    def extra_repr(self) -> str:
        return f"source={self.source!r}, image={self.image}, outputs={self.outputs}"

    def _check(self, inputs: Tensor) -> None:
        wanted = (None, *self.image[1:]) if len(self.session.get_inputs()) == 2 else self.image
        got = tuple(inputs.shape[1:])
        if len(got) != len(wanted) or any(size not in (None, found) for size, found in zip(wanted, got, strict=True)):
            shape = ", ".join("any" if size is None else str(size) for size in wanted)
            raise ValueError(
                f"{self.source} takes batches of ({shape}); got a batch of shape {tuple(inputs.shape)}; export the "
                "model again for other sizes"
            )


def load(path: str | Path) -> OnnxModel:
    """The model of an ONNX file, which may come from a stranger: sizes and metadata are checked, no code is run.

    Args:
        path: a file that ``to_onnx`` wrote.

    Returns:
        A model that onnxruntime runs on the CPU.

    Example:
        >>> load("digits.onnx").class_names  # doctest: +SKIP
        ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    place = Path(path)
    size = place.stat().st_size
    if size > LARGEST_FILE:
        raise ValueError(f"{path} has {size:,} bytes; an ONNX file has at most {LARGEST_FILE:,}")
    session = open_session(place.read_bytes(), str(path), torch.get_num_threads())
    shape, trained = read_contents(dict(session.get_modelmeta().custom_metadata_map), path)
    if shape is None:
        raise ValueError(f"{path}: its metadata have no input_shape; it holds a layer or a decoder and not a model")
    _check_graph(session, shape, trained, path)
    return OnnxModel(session, shape, trained, str(path))


def _check_graph(session: Any, shape: tuple[int, ...], trained: Training | None, path: str | Path) -> None:
    """That the network takes and returns what its metadata say, before anything is run."""
    inputs, outputs = session.get_inputs(), {output.name: output for output in session.get_outputs()}
    names = [given.name for given in inputs]
    if names not in (["inputs"], ["inputs", "mask"]):
        raise ValueError(
            f"{path} takes {', '.join(names)[:80] or 'nothing'}; a model's file takes inputs, or inputs and mask"
        )
    sizes = inputs[0].shape[1:]
    fits = len(sizes) == len(shape) and all(
        found == wanted or (isinstance(found, str) and number == 0 and len(names) == 2)
        for number, (found, wanted) in enumerate(zip(sizes, shape, strict=True))
    )
    if inputs[0].type != "tensor(float)" or not fits or np.prod(shape, dtype=float) > LARGEST_INPUT:
        raise ValueError(f"{path}: its network takes {inputs[0].type} of {inputs[0].shape}, its metadata say {shape}")
    if "logits" not in outputs or len(outputs["logits"].shape) != 2:
        raise ValueError(f"{path} returns {', '.join(outputs)[:80]}; a model's file returns logits for each class")
    classes = outputs["logits"].shape[1]
    if trained is not None and isinstance(classes, int) and classes != len(trained.class_names):
        raise ValueError(f"{path}: {len(trained.class_names)} names for {classes} classes; expected one for each")


def _as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().float().contiguous().numpy()
