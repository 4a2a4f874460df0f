"""Trained networks for other runtimes: ONNX files, which onnxruntime runs without this package, and ``torch.export``.

``to_onnx(model, path)`` writes a file with a free batch size, ``load(path)`` runs one, ``to_torch(model, path)`` writes
a program for ``torch.export.load``. The extra ``export`` brings what they need.
"""

from torchcaps.export.reading import OnnxModel, load
from torchcaps.export.writing import decoder_to_onnx, to_onnx, to_torch

__all__ = ["OnnxModel", "decoder_to_onnx", "load", "to_onnx", "to_torch"]
