"""Writes the page: network and decoder as ONNX files, what there is to say of them, and the page's own files."""

import base64
import shutil
from pathlib import Path
from typing import Any

import torch

from torchcaps import export
from torchcaps.data import DataError, Dataset
from torchcaps.export.outputs import require_decoder
from torchcaps.export.writing import takes_sequences
from torchcaps.files import write_json
from torchcaps.lab.demo.network import PartsOutputs, find_grid
from torchcaps.lab.demo.runtime import SHA256, find_runtime
from torchcaps.lab.evaluation.evaluation import is_exclusive
from torchcaps.lab.evaluation.fitting import class_count
from torchcaps.lab.evaluation.own_images import wanted_shape
from torchcaps.lab.evaluation.subjects import LoadedModel
from torchcaps.layers import CapsuleLayer
from torchcaps.models import CapsuleNet

PAGE = Path(__file__).parent / "page"
CENTERED = ("mnist", "mnist_sample", "fashion_mnist")  # datasets whose images are centered and of one size
LARGEST_IMAGE = 256  # pixels on a side: the page predicts while a pen moves
MOST_EXAMPLES = 10


def write_demo(subject: LoadedModel, folder: Path, runtime: Path | None = None) -> dict[str, Any]:
    """Write the page of a model into a folder; what the page says of it.

    Args:
        subject: the model, as ``open_model`` returns it.
        folder: a new or empty folder, or one with such a page.
        runtime: package folder or tarball of onnxruntime-web; npm fetches it if left out.
    """
    check_showable(subject)
    if folder.exists() and any(folder.iterdir()) and not (folder / "model.json").is_file():
        raise ValueError(f"{folder} has other files in it; give a new or an empty folder")
    files = find_runtime(runtime)  # before the slow part
    folder.mkdir(parents=True, exist_ok=True)
    about = describe(subject)
    model = subject.model
    if about["grid"] is not None:
        example = torch.rand(1, *model.image, generator=torch.Generator().manual_seed(0))
        export.to_onnx(PartsOutputs(model), folder / "model.onnx", example, dynamic=False)  # one image at a time
    else:
        export.to_onnx(model, folder / "model.onnx")
    if about["decoder"]:
        export.decoder_to_onnx(model, folder / "decoder.onnx")
    for path in PAGE.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    (folder / "runtime").mkdir(exist_ok=True)
    for name in SHA256:
        shutil.copyfile(files / name, folder / "runtime" / name)
    write_json(folder / "model.json", about)  # last: a folder with it is whole
    return about


def check_showable(subject: LoadedModel) -> None:
    """Refuse what the page cannot show, and say why."""
    if subject.run is not None and subject.run.recipe.text.encoder:
        raise ValueError(
            f"{subject.name} was trained on texts, and the page takes images; `torchcaps predict {subject.name} "
            '--text "…" --html FILE` shows which words each class used'
        )
    image = subject.model.image
    if len(image) != 3 or takes_sequences(subject.model):
        raise ValueError(f"{subject.name} takes inputs of {image}, and the page takes images")
    if max(image[1:]) > LARGEST_IMAGE:
        raise ValueError(
            f"{subject.name} takes images of {image[2]}×{image[1]}; the page shows networks for up to "
            f"{LARGEST_IMAGE}×{LARGEST_IMAGE}, which predict while a pen moves"
        )


def describe(subject: LoadedModel) -> dict[str, Any]:
    """What the page has to know of a model."""
    model = subject.model
    channels, rows, columns = wanted_shape(subject)
    layers = [layer for layer in model.modules() if isinstance(layer, CapsuleLayer)]
    transforms, recipe = subject.transforms, None if subject.run is None else subject.run.recipe
    return {
        "name": subject.title,
        "classes": list(subject.classes or map(str, range(class_count(subject)))),
        "image": [channels, rows, columns],
        "input": list(model.image),
        "resize": transforms.resize,
        "crop": transforms.crop,
        "pad": transforms.pad,
        "standardize": transforms.standardize,
        "mean": list(transforms.mean),
        "std": list(transforms.std),
        "decision": subject.loss.decision,
        "exclusive": is_exclusive(subject.loss),
        "centered": recipe is not None and recipe.data.train in CENTERED and subject.loss.decision == "argmax",
        "capsules": bool(layers),
        "routing": layers[-1].routing.title if layers else None,
        "couples": all(layer.routing.couples for layer in layers),
        "grid": find_grid(model),
        "decoder": _has_decoder(subject),
        "pose": model.class_pose if isinstance(model, CapsuleNet) else None,
        "examples": list_examples(subject),
    }


def _has_decoder(subject: LoadedModel) -> bool:
    try:
        require_decoder(subject.model)
    except ValueError:
        return False
    return True


def list_examples(subject: LoadedModel) -> list[dict[str, Any]]:
    """One test image of each class, as bytes (row, column, channel) in base64; none where the data are not at hand."""
    if subject.run is None or subject.classes is None:
        return []
    try:
        examples = subject.run.examples("test")
        if not isinstance(examples, Dataset):
            return []
        batch = examples.batch(torch.arange(min(len(examples), 200)))
    except (DataError, OSError):
        return []
    if batch.label.ndim != 1:
        chosen = range(min(MOST_EXAMPLES, len(batch.image)))
    else:
        labels = batch.label.tolist()
        chosen = [labels.index(number) for number in sorted(set(labels))[:MOST_EXAMPLES]]
    found = []
    for number in chosen:
        label = batch.label[number]
        classes = [int(label)] if label.ndim == 0 else (label > 0.5).nonzero()[:, 0].tolist()
        pixels = (batch.image[number].clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()
        text = " + ".join(subject.classes[each] for each in classes)
        found.append({"label": text, "pixels": base64.b64encode(pixels.numpy().tobytes()).decode()})
    return found
