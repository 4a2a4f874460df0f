"""A user's own image files, made into what a model takes; every change is said."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcaps.data import Batch, DataError, Dataset
from torchcaps.data.pictures import middle_of, read_header, read_picture
from torchcaps.lab.evaluation.evaluation import probabilities
from torchcaps.lab.evaluation.photos import fit_strokes
from torchcaps.lab.evaluation.subjects import LoadedModel
from torchcaps.lab.loaders import ImageLoader, views
from torchcaps.lab.training.scoring import combine
from torchcaps.models.base import device_of

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Guess:
    """What a model says of one image: all classes with their probabilities, the likeliest first."""

    ranked: tuple[tuple[str, float], ...]
    present: tuple[str, ...]  # those that it decides on, if any class is likely
    changes: tuple[str, ...]  # what was done to the image
    brightness: float = 0.0  # mean of the image that the model was given, before its transforms


class OneImage(Dataset):
    """A single image as a dataset, so that it is prepared like any other; nobody knows its label."""

    def __init__(self, image: Float[Tensor, "channel row column"], name: str, classes: tuple[str, ...]) -> None:
        self.image, self.name, self.split, self.classes = image, name, "own", classes

    def __len__(self) -> int:
        return 1

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.image.expand(len(indices), -1, -1, -1), torch.zeros(len(indices), dtype=torch.long), {})


def example_of(subject: LoadedModel) -> Float[Tensor, "channel row column"] | None:
    """One of the images that the model was trained on, before preparation; ``None`` where they are not at hand."""
    if subject.run is None:
        return None
    try:
        examples = subject.run.examples("train")
        return examples.batch(torch.arange(1)).image[0] if isinstance(examples, Dataset) else None
    except (DataError, OSError):
        return None


def wanted_shape(subject: LoadedModel) -> Shape:
    """Channels, rows and columns of the images that the model's preparation begins with."""
    trained = subject.model.trained
    if trained is not None and trained.image_shape is not None and len(trained.image_shape) == 3:
        channels, rows, columns = trained.image_shape
        return channels, rows, columns
    example = example_of(subject)
    if example is not None:
        channels, rows, columns = example.shape
        return channels, rows, columns
    if len(subject.model.image) != 3:
        raise ValueError(f"{subject.name} takes no images: its inputs are {subject.model.image}")
    channels, rows, columns = subject.model.image
    side = subject.transforms.resize or subject.transforms.crop
    return (channels, side, side) if side is not None else (channels, rows, columns)


def guess(
    subject: LoadedModel,
    path: Path,
    shape: Shape,
    classes: tuple[str, ...],
    *,
    invert: bool = False,
    fit: bool = False,
    threshold: float = 0.0,
) -> Guess:
    """What the model says of an image file; no class is present where the likeliest is below ``threshold``.

    ``fit`` makes a photo of a digit what MNIST's are: contrast, crop, center (see ``torchcaps.lab.evaluation.photos``).
    """
    image, changes = read_strokes(path, shape) if fit else read_image(path, shape)
    if invert:
        image, changes = 1 - image, [*changes, "inverted"]
    loader = ImageLoader(OneImage(image, str(path), classes), subject.transforms)
    device = device_of(subject.model)
    with torch.inference_mode():
        seen = [batch.to(device) for batch in views(loader, torch.arange(1))]
        logits = combine([subject.model(*batch.inputs).logits.float() for batch in seen], subject.loss).cpu()
    chances = probabilities(logits, subject.loss)[0]
    decided = subject.loss.decide(logits)[0]
    order = logits[0].argsort(descending=True).tolist()
    likely = float(chances.max()) >= threshold
    return Guess(
        tuple((classes[number], float(chances[number])) for number in order),
        tuple(classes[number] for number in order if decided[number] and likely),
        tuple(changes),
        float(image.mean()),
    )


def read_image(path: Path, shape: Shape) -> tuple[Float[Tensor, "channel row column"], list[str]]:
    """An image file with these channels and this size, 0 to 1, as training reads it, and what was done to get there."""
    channels, rows, columns = shape
    header = read_header(path, str(path))
    changes = header.changes()
    if channels == 3 and header.gray:
        changes.append("gray → color")
    elif channels != 3 and not header.gray:
        changes.append("color → gray")
    if channels not in (1, 3):
        image = _as_floats(read_picture(path, str(path), gray=True))
        image, words = _several_views(image, channels)
        return _cut_and_resize(image, (rows, columns), [*changes, words])
    found, size = (header.rows, header.columns), (rows, columns)
    if (part := middle_of(found, size)) != found:
        changes.append(f"the middle {part[1]}×{part[0]} of {found[1]}×{found[0]}")
    if part != size:
        changes.append(f"scaled from {part[1]}×{part[0]} to {columns}×{rows}")
    return _as_floats(read_picture(path, str(path), gray=channels == 1, size=size)), changes


def read_strokes(path: Path, shape: Shape) -> tuple[Float[Tensor, "1 row column"], list[str]]:
    """A photo of a digit or letter as MNIST has them, and what was done to get there."""
    channels, rows, columns = shape
    if channels != 1 or rows != columns:
        raise ValueError(
            f"--fit makes gray squares of photos, but this model was trained on images of {channels}×{rows}×{columns} "
            "(channels, rows, columns); leave it out"
        )
    header = read_header(path, str(path))
    try:
        image = fit_strokes(_as_floats(read_picture(path, str(path), gray=True)), rows)
    except ValueError as error:
        raise DataError(f"{path}: {error}; take a photo of one sign on plain paper, or leave --fit out") from error
    changes = [] if header.gray else ["color → gray"]
    return image, [*header.changes(), *changes, f"strokes of {header.columns}×{header.rows} fitted to {columns}×{rows}"]


def _as_floats(pixels: np.ndarray) -> Float[Tensor, "channel row column"]:
    return torch.from_numpy(pixels if pixels.dtype == np.float32 else pixels / np.float32(255))


def _several_views(image: Tensor, channels: int) -> tuple[Tensor, str]:
    """Channels that are several views, as of a stereo pair: side by side in the file, or else the same one for all."""
    side = image.shape[2] // channels
    if image.shape[2] == side * channels and side == image.shape[1]:
        return torch.cat(image.split(side, dim=2)), f"{channels} views side by side"
    return image.expand(channels, -1, -1), f"the one view used for all {channels}"


def _cut_and_resize(image: Tensor, size: tuple[int, int], changes: list[str]) -> tuple[Tensor, list[str]]:
    """The middle of an image that has the wanted proportion, resized."""
    height, width = image.shape[1:]
    rows, columns = middle_of((height, width), size)
    if (rows, columns) != (height, width):
        top, left = (height - rows) // 2, (width - columns) // 2
        image = image[:, top : top + rows, left : left + columns]
        changes = [*changes, f"the middle {columns}×{rows} of {width}×{height}"]
    if (rows, columns) != size:
        changes = [*changes, f"scaled from {columns}×{rows} to {size[1]}×{size[0]}"]
        image = F.interpolate(image[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
    return image.clamp(0, 1), changes
