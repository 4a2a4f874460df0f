"""What the training loop eats: batches of model inputs with their targets, asked for by the numbers of the examples.

A feed is made from a dataset and a recipe's preparation. With a generator it prepares for training, random crops and
mixup drawn from it; without one it prepares for evaluation, and the same indices give the same batch.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, device

from torchcaps.data import Dataset
from torchcaps.data.transforms import AffineRanges, affine, draw_mixture, flip, jitter, normalise, soft_labels
from torchcaps.data.transforms import crop as window
from torchcaps.data.transforms import standardise as standardised
from torchcaps.lab.recipes.base import Prepare

Images = Float[Tensor, "n channel row column"]
Resized = Float[Tensor, "n channel height width"]


class Fed(NamedTuple):
    """One batch, ready for a model and its loss."""

    inputs: tuple[Tensor, ...]  # what the model is called with
    target: Int[Tensor, "n"] | Float[Tensor, "n k"]  # for the loss: mixed where inputs are mixed
    label: Int[Tensor, "n"] | Float[Tensor, "n k"]  # the truth, before mixing
    image: Float[Tensor, "n ..."] | None = None  # what a decoder should draw, if there is such a thing
    draw: Int[Tensor, "n"] | Int[Tensor, "n m"] | None = None  # the capsule to draw each image from; -1 for none

    def part(self, start: int, stop: int) -> "Fed":
        """Some of the examples."""
        return self._each(lambda tensor: tensor[start:stop])

    def to(self, place: device) -> "Fed":
        return self._each(lambda tensor: tensor.to(place, non_blocking=True))

    def pinned(self) -> "Fed":
        """In memory that a GPU reads by itself, so that ``to`` does not wait."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Fed":
        image, draw = (None if tensor is None else change(tensor) for tensor in (self.image, self.draw))
        return Fed(tuple(map(change, self.inputs)), change(self.target), change(self.label), image, draw)


@runtime_checkable
class Feed(Protocol):
    """Numbered examples as batches for a model."""

    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> Fed: ...


class Selected:
    """A feed of some of another feed's examples: number ``k`` of it is number ``select(k)`` of the other."""

    def __init__(self, feed: Feed, length: int, select: Callable[[Int[Tensor, "n"]], Int[Tensor, "n"]]) -> None:
        self.feed, self.length, self.select = feed, length, select
        self.classes = feed.classes

    def __len__(self) -> int:
        return self.length

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> Fed:
        return self.feed.batch(self.select(indices), generator)

    def views(self, indices: Int[Tensor, "n"]) -> list[Fed]:
        return views(self.feed, self.select(indices))

    def at_epoch(self, epoch: int) -> Feed:
        return Selected(feed_at_epoch(self.feed, epoch), self.length, self.select)


def feed_at_epoch(feed: Feed, epoch: int) -> Feed:
    """The feed as training meets it in an epoch: with other images where the dataset draws them anew."""
    later = getattr(feed, "at_epoch", None)
    return feed if later is None else later(epoch)


def views(feed: Feed, indices: Int[Tensor, "n"]) -> list[Fed]:
    """The same examples once, or once for each crop that evaluation averages over."""
    several = getattr(feed, "views", None)
    return [feed.batch(indices)] if several is None else several(indices)


# Where crops of an evaluation are, as shares of the free room in rows and columns: the middle, corners, edges.
CROPS = (
    *((0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)),
    *((0.0, 0.5), (1.0, 0.5), (0.5, 0.0), (0.5, 1.0)),
)


class ImageFeed:
    """Images prepared as a recipe says. A decoder should draw what is fed before it is standardised or normalised;
    where the dataset has the parts of an image one by one (MultiMNIST), each part from its own class's capsule.

    >>> from torchcaps.data import load
    >>> feed = ImageFeed(load("mnist_sample", "test"), Prepare(pad=2, standardise=True))
    >>> feed.batch(torch.arange(3), torch.Generator().manual_seed(0)).inputs[0].shape
    torch.Size([3, 1, 28, 28])
    """

    def __init__(self, dataset: Dataset, prepare: Prepare) -> None:
        if not 1 <= prepare.crops <= len(CROPS):
            raise ValueError(f"evaluation averages over 1 to {len(CROPS)} crops; got prepare.crops={prepare.crops}")
        self.dataset, self.prepare = dataset, prepare
        self.classes = dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> Fed:
        """The examples of these numbers: for training with a generator, for evaluation (the middle crop) without."""
        return self._fed(indices, generator, CROPS[0])

    def at_epoch(self, epoch: int) -> Feed:
        return ImageFeed(self.dataset.at_epoch(epoch), self.prepare)

    def views(self, indices: Int[Tensor, "n"]) -> list[Fed]:
        """The examples as evaluation sees them, once for each of its crops."""
        return [self._fed(indices, None, place) for place in CROPS[: self.prepare.crops]]

    def _fed(self, indices: Int[Tensor, "n"], generator: Generator | None, place: tuple[float, float]) -> Fed:
        found = self.dataset.batch(indices)
        channels, parts = found.image.shape[1], found.metadata.get("parts")
        # Parts move with their image: for what is moved they are more channels of it.
        pictures = found.image if parts is None else torch.cat((found.image, parts), dim=1)
        pictures = self._moved(pictures, generator, place)
        image, parts = pictures[:, :channels], None if parts is None else pictures[:, channels:]
        if generator is not None:
            image = self._recoloured(image, generator)
        drawn, draw = _to_draw(image, parts, found.label, found.metadata.get("digits"))
        inputs = self._scaled(image)
        if generator is None or not self.prepare.mixup:
            return Fed((inputs,), found.label, found.label, drawn, draw)
        mixture = draw_mixture(len(indices), generator=generator, alpha=self.prepare.mixup)
        target = mixture.mix(soft_labels(found.label, len(self.classes)))
        return Fed((mixture.mix(inputs),), target, found.label)  # nobody knows what to draw of a mixture

    def _moved(self, images: Images, generator: Generator | None, place: tuple[float, float]) -> Resized:
        """Resized, cropped, mirrored, turned."""
        prepare = self.prepare
        if prepare.resize is not None:
            size = (prepare.resize, prepare.resize)
            images = F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
        images = self._cropped(images, generator, place)
        if generator is None:
            return images
        if prepare.flip:
            images = flip(images, generator=generator)
        if prepare.rotation:
            ranges = AffineRanges(rotation=prepare.rotation, shear=0.0, scale=(1.0, 1.0), translation=0.0)
            images = affine(images, generator=generator, ranges=ranges)
        return images

    def _cropped(self, images: Images, generator: Generator | None, place: tuple[float, float]) -> Resized:
        prepare = self.prepare
        height, width = images.shape[2:] if prepare.crop is None else (prepare.crop, prepare.crop)
        if prepare.pad:
            images = F.pad(images, [prepare.pad] * 4, mode="constant" if prepare.fill == "zeros" else "replicate")
        room = (images.shape[2] - height, images.shape[3] - width)
        if min(room) < 0:
            raise ValueError(
                f"a crop of {height}×{width} does not fit into images of {images.shape[2]}×{images.shape[3]} "
                f"({self.dataset.name}); lower prepare.crop, or raise prepare.pad or prepare.resize"
            )
        if max(room) == 0:
            if prepare.crops > 1:
                raise ValueError(f"{prepare.crops} crops of {height}×{width} in images of the same size are one crop")
            return images
        if generator is None:
            corner = [torch.full((len(images),), int(free * share)) for free, share in zip(room, place, strict=True)]
        else:
            corner = [torch.randint(free + 1, (len(images),), generator=generator) for free in room]
        return window(images, corner[0], corner[1], (height, width))

    def _recoloured(self, images: Images, generator: Generator) -> Images:
        brightness, contrast = self.prepare.brightness, self.prepare.contrast
        if not brightness and not contrast:
            return images
        return jitter(images, generator=generator, brightness=brightness, contrast=(1 - contrast, 1 + contrast))

    def _scaled(self, images: Images) -> Images:
        prepare = self.prepare
        if prepare.standardise:
            images = standardised(images)
        if prepare.mean or prepare.std:
            channels = images.shape[1]
            images = normalise(images, mean=prepare.mean or (0.0,) * channels, std=prepare.std or (1.0,) * channels)
        return images


def _to_draw(
    image: Images,
    parts: Float[Tensor, "n m row column"] | None,
    label: Int[Tensor, "n"] | Float[Tensor, "n k"],
    digits: Int[Tensor, "n m"] | None,
) -> tuple[Float[Tensor, "n ..."] | None, Int[Tensor, "n"] | Int[Tensor, "n m"] | None]:
    """What a decoder should draw, and from which capsules: one image of each example, or each of its parts."""
    if parts is not None and digits is not None:
        return parts.unsqueeze(2), digits
    if label.ndim == 1:
        return image.clamp(0.0, 1.0), label  # jitter may leave what a decoder can draw
    return None, None
