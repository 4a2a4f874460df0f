"""A user's own image files, made into what a model takes; every change is said."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcaps.data import Batch, DataError, Dataset
from torchcaps.data.pictures import decode, size_of
from torchcaps.evaluate.evaluation import probabilities
from torchcaps.evaluate.subjects import Subject
from torchcaps.feeds import ImageFeed, views
from torchcaps.train.scoring import combine

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Guess:
    """What a model says of one image: all classes with their probabilities, the likeliest first."""

    ranked: tuple[tuple[str, float], ...]
    present: tuple[str, ...]  # those that it decides on
    changes: tuple[str, ...]  # what was done to the image


class OneImage(Dataset):
    """A single image as a dataset, so that it is prepared like any other; nobody knows its label."""

    def __init__(self, image: Float[Tensor, "channel row column"], name: str, classes: tuple[str, ...]) -> None:
        self.image, self.name, self.split, self.classes = image, name, "own", classes

    def __len__(self) -> int:
        return 1

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.image.expand(len(indices), -1, -1, -1), torch.zeros(len(indices), dtype=torch.long), {})


def example_of(subject: Subject) -> Float[Tensor, "channel row column"] | None:
    """One of the images that the model was trained on, before preparation; ``None`` where they are not at hand."""
    if subject.run is None:
        return None
    try:
        examples = subject.run.examples("train")
        return examples.batch(torch.arange(1)).image[0] if isinstance(examples, Dataset) else None
    except (DataError, OSError):
        return None


def wanted_shape(subject: Subject) -> Shape:
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
    side = subject.prepare.resize or subject.prepare.crop
    return (channels, side, side) if side is not None else (channels, rows, columns)


def guess(subject: Subject, path: Path, shape: Shape, classes: tuple[str, ...], *, invert: bool = False) -> Guess:
    """What the model says of an image file."""
    image, changes = read_image(path, shape)
    if invert:
        image, changes = 1 - image, [*changes, "inverted"]
    feed = ImageFeed(OneImage(image, str(path), classes), subject.prepare)
    device = next(subject.model.parameters()).device
    with torch.inference_mode():
        seen = [fed.to(device) for fed in views(feed, torch.arange(1))]
        logits = combine([subject.model(*fed.inputs).logits.float() for fed in seen], subject.loss).cpu()
    chances = probabilities(logits, subject.loss)[0]
    decided = subject.loss.decide(logits)[0]
    order = logits[0].argsort(descending=True).tolist()
    return Guess(
        tuple((classes[number], float(chances[number])) for number in order),
        tuple(classes[number] for number in order if decided[number]),
        tuple(changes),
    )


def read_image(path: Path, shape: Shape) -> tuple[Float[Tensor, "channel row column"], list[str]]:
    """An image file with these channels and this size, 0 to 1, and what was done to get there."""
    channels, rows, columns = shape
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    _, _, is_grey = size_of(path, str(path))
    image = torch.from_numpy(decode(path, str(path), grey=channels != 3)).float() / 255
    changes: list[str] = []
    if channels == 3 and is_grey:
        changes.append("grey → colour")
    elif channels != 3 and not is_grey:
        changes.append("colour → grey")
    if channels not in (1, 3):
        image, words = _several_views(image, channels)
        changes.append(words)
    image, cut = _cut_to_proportion(image, rows / columns)
    changes += cut
    if tuple(image.shape[1:]) != (rows, columns):
        changes.append(f"scaled from {image.shape[2]}×{image.shape[1]} to {columns}×{rows}")
        image = F.interpolate(image[None], (rows, columns), mode="bilinear", antialias=True, align_corners=False)[0]
    return image.clamp(0, 1), changes


def _several_views(image: Tensor, channels: int) -> tuple[Tensor, str]:
    """Channels that are several views, as of a stereo pair: side by side in the file, or else the same one for all."""
    side = image.shape[2] // channels
    if image.shape[2] == side * channels and side == image.shape[1]:
        return torch.cat(image.split(side, dim=2)), f"{channels} views side by side"
    return image.expand(channels, -1, -1), f"the one view used for all {channels}"


def _cut_to_proportion(image: Tensor, proportion: float) -> tuple[Tensor, list[str]]:
    """The middle of an image that has the wanted proportion of height to width."""
    height, width = image.shape[1:]
    rows, columns = min(height, round(width * proportion)), min(width, round(height / proportion))
    rows, columns = max(rows, 1), max(columns, 1)
    if (rows, columns) == (height, width):
        return image, []
    top, left = (height - rows) // 2, (width - columns) // 2
    cut = image[:, top : top + rows, left : left + columns]
    return cut, [f"the middle {columns}×{rows} of {width}×{height}"]
