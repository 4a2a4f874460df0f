"""Exported networks in the benchmark: the forward pass of a model in onnxruntime and in PyTorch."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.cases import OURS, Case, Target, Work
from torchcaps import export, models

ONNXRUNTIME = "onnxruntime"
SHAPES: dict[str, tuple[str, dict[str, bool]]] = {
    "sabour-mnist-onnx": ("sabour2017_mnist", {"decoder": False}),
    "heinsen-smallnorb-onnx": ("heinsen2019_smallnorb", {}),
}


def _predict_by_torch(name: str, fields: dict[str, bool], batch: int) -> Work:
    torch.manual_seed(0)
    model = models.create(name, **fields).eval()
    inputs = torch.rand(batch, *model.image)

    def work() -> object:
        with torch.inference_mode():
            return model(inputs).logits

    return work


def _predict_by_onnxruntime(name: str, fields: dict[str, bool], batch: int) -> Work:
    torch.manual_seed(0)
    model = models.create(name, **fields).eval()
    inputs = torch.rand(batch, *model.image)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export.to_onnx(model, path, check=False)
        exported = export.load(path)  # with as many threads as PyTorch has
    return lambda: exported(inputs).logits


def _case(name: str, fields: dict[str, bool], batch: int) -> Case:
    return Case(
        f"{name}, the logits of {batch} images, in PyTorch and exported to onnxruntime",
        {
            OURS: lambda: _predict_by_torch(name, fields, batch),
            ONNXRUNTIME: lambda: _predict_by_onnxruntime(name, fields, batch),
        },
        # No aim: whichever is faster, the file is for places without PyTorch.
        (Target(ONNXRUNTIME, 0.0),),
    )


def _make(name: str, fields: dict[str, bool], batch: int) -> Callable[[], Case]:
    return lambda: _case(name, fields, batch)


EXPORT: dict[str, Callable[[], Case]] = {
    f"{title}-{batch}": _make(name, fields, batch) for title, (name, fields) in SHAPES.items() for batch in (1, 64)
}
