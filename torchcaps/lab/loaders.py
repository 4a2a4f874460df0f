"""Loaders: batches of model inputs with their targets, by the numbers of the examples.

A loader is made from a dataset and a recipe's transforms. With a generator it transforms for training, with random
crops and mixup; without one it transforms for evaluation, and the same indices give the same batch.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, device

from torchcaps.data import Dataset
from torchcaps.data.augmentation import erase, rotate_some, shift_in_margins, squish
from torchcaps.data.transforms import (
    AffineRanges,
    affine,
    draw_mixture,
    flip,
    jitter,
    normalize,
    soft_labels,
    standardize,
)
from torchcaps.data.transforms import crop as window
from torchcaps.lab.recipes.base import Transforms

Images = Float[Tensor, "n channel row column"]
Resized = Float[Tensor, "n channel height width"]


class ModelBatch(NamedTuple):
    """One batch, ready for a model and its loss."""

    inputs: tuple[Tensor, ...]  # what the model is called with
    target: Int[Tensor, "n"] | Float[Tensor, "n k"]  # for the loss: mixed where inputs are mixed
    label: Int[Tensor, "n"] | Float[Tensor, "n k"]  # the truth, before mixing
    image: Float[Tensor, "n ..."] | None = None  # what a decoder should reconstruct, if there is such a thing
    decode: Int[Tensor, "n"] | Int[Tensor, "n m"] | None = None  # the capsule to decode each image from; -1 for none

    def part(self, start: int, stop: int) -> "ModelBatch":
        """Some of the examples."""
        return self._each(lambda tensor: tensor[start:stop])

    def to(self, place: device) -> "ModelBatch":
        return self._each(lambda tensor: tensor.to(place, non_blocking=True))

    def pin(self) -> "ModelBatch":
        """In memory that a GPU reads by itself, so that ``to`` does not wait."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "ModelBatch":
        image, decode = (None if tensor is None else change(tensor) for tensor in (self.image, self.decode))
        return ModelBatch(tuple(map(change, self.inputs)), change(self.target), change(self.label), image, decode)


@runtime_checkable
class Loader(Protocol):
    """Numbered examples as batches for a model."""

    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch: ...


class Subset:
    """A loader of some of another loader's examples: number ``k`` of it is number ``select(k)`` of the other."""

    def __init__(self, loader: Loader, length: int, select: Callable[[Int[Tensor, "n"]], Int[Tensor, "n"]]) -> None:
        self.loader, self.length, self.select = loader, length, select
        self.classes = loader.classes

    def __len__(self) -> int:
        return self.length

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch:
        return self.loader.batch(self.select(indices), generator)

    def views(self, indices: Int[Tensor, "n"]) -> list[ModelBatch]:
        return views(self.loader, self.select(indices))

    def at_epoch(self, epoch: int) -> Loader:
        return Subset(loader_at_epoch(self.loader, epoch), self.length, self.select)


def loader_at_epoch(loader: Loader, epoch: int) -> Loader:
    """The loader as training meets it in an epoch: with other images where the dataset generates them anew."""
    later = getattr(loader, "at_epoch", None)
    return loader if later is None else later(epoch)


def views(loader: Loader, indices: Int[Tensor, "n"]) -> list[ModelBatch]:
    """The same examples once, or once for each crop that evaluation averages over."""
    several = getattr(loader, "views", None)
    return [loader.batch(indices)] if several is None else several(indices)


# Where crops of an evaluation are, as shares of the free room in rows and columns: the middle, corners, edges.
CROPS = (
    *((0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)),
    *((0.0, 0.5), (1.0, 0.5), (0.5, 0.0), (0.5, 1.0)),
)


class ImageLoader:
    """Images prepared as a recipe says. A decoder reconstructs them as they are before they are standardized or
    normalized; where the dataset has the parts of an image one by one (MultiMNIST), each part from its class's capsule.

    >>> from torchcaps.data import load
    >>> loader = ImageLoader(load("mnist_sample", "test"), Transforms(pad=2, standardize=True))
    >>> loader.batch(torch.arange(3), torch.Generator().manual_seed(0)).inputs[0].shape
    torch.Size([3, 1, 28, 28])
    """

    def __init__(self, dataset: Dataset, transforms: Transforms) -> None:
        if not 1 <= transforms.crops <= len(CROPS):
            raise ValueError(
                f"evaluation averages over 1 to {len(CROPS)} crops; got transforms.crops={transforms.crops}"
            )
        self.dataset, self.transforms = dataset, transforms
        self.classes = dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Int[Tensor, "n"], generator: Generator | None = None) -> ModelBatch:
        """The examples of these numbers: for training with a generator, for evaluation (the middle crop) without."""
        return self._batch(indices, generator, CROPS[0])

    def at_epoch(self, epoch: int) -> Loader:
        return ImageLoader(self.dataset.at_epoch(epoch), self.transforms)

    def views(self, indices: Int[Tensor, "n"]) -> list[ModelBatch]:
        """The examples as evaluation sees them, once for each of its crops."""
        return [self._batch(indices, None, place) for place in CROPS[: self.transforms.crops]]

    def _batch(self, indices: Int[Tensor, "n"], generator: Generator | None, place: tuple[float, float]) -> ModelBatch:
        found = self.dataset.batch(indices)
        channels, parts = found.image.shape[1], found.metadata.get("parts")
        # Parts move with their image: for what is moved they are more channels of it.
        pictures = found.image if parts is None else torch.cat((found.image, parts), dim=1)
        pictures = self._move(pictures, generator, place)
        image, parts = pictures[:, :channels], None if parts is None else pictures[:, channels:]
        if generator is not None:
            image = self._recolor(image, generator)
        wanted, decode = _choose_target(image, parts, found.label, found.metadata.get("digits"))
        inputs = self._scale(image)
        if generator is None or not self.transforms.mixup:
            return ModelBatch((inputs,), found.label, found.label, wanted, decode)
        mixture = draw_mixture(len(indices), generator=generator, alpha=self.transforms.mixup)
        target = mixture.mix(soft_labels(found.label, len(self.classes)))
        return ModelBatch((mixture.mix(inputs),), target, found.label)  # a mixture is not reconstructed

    def _move(self, images: Images, generator: Generator | None, place: tuple[float, float]) -> Resized:
        """Resize, crop, mirror and distort."""
        transforms = self.transforms
        if transforms.resize is not None:
            size = (transforms.resize, transforms.resize)
            images = F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
        images = self._crop(images, generator, place)
        if generator is None:
            return images
        if transforms.flip:
            images = flip(images, generator=generator)
        return self._distort(images, generator)

    def _distort(self, images: Images, generator: Generator) -> Images:
        transforms, amounts = self.transforms, self.transforms.amounts
        if transforms.rotation and (amounts == "normal" or transforms.rotation_share != 1.0):
            share = transforms.rotation_share
            images = rotate_some(images, degrees=transforms.rotation, share=share, amounts=amounts, generator=generator)
        elif transforms.rotation:
            ranges = AffineRanges(rotation=transforms.rotation, shear=0.0, scale=(1.0, 1.0), translation=0.0)
            images = affine(images, generator=generator, ranges=ranges)
        if transforms.shift_in_margins:
            images = shift_in_margins(images, amounts=amounts, generator=generator)
        if transforms.squish:
            images = squish(images, most=transforms.squish, amounts=amounts, generator=generator)
        if transforms.erase:
            images = erase(images, side=transforms.erase, generator=generator)
        return images

    def _crop(self, images: Images, generator: Generator | None, place: tuple[float, float]) -> Resized:
        transforms = self.transforms
        height, width = images.shape[2:] if transforms.crop is None else (transforms.crop, transforms.crop)
        if transforms.pad:
            images = F.pad(images, [transforms.pad] * 4, mode="constant" if transforms.fill == "zeros" else "replicate")
        room = (images.shape[2] - height, images.shape[3] - width)
        if min(room) < 0:
            raise ValueError(
                f"a crop of {height}×{width} does not fit into images of {images.shape[2]}×{images.shape[3]} "
                f"({self.dataset.name}); lower transforms.crop, or raise transforms.pad or transforms.resize"
            )
        if max(room) == 0:
            if transforms.crops > 1:
                raise ValueError(
                    f"{transforms.crops} crops of {height}×{width} in images of the same size are one crop"
                )
            return images
        if generator is None:
            corner = [torch.full((len(images),), int(free * share)) for free, share in zip(room, place, strict=True)]
        else:
            corner = [torch.randint(free + 1, (len(images),), generator=generator) for free in room]
        return window(images, corner[0], corner[1], (height, width))

    def _recolor(self, images: Images, generator: Generator) -> Images:
        brightness, contrast = self.transforms.brightness, self.transforms.contrast
        if not brightness and not contrast:
            return images
        return jitter(images, generator=generator, brightness=brightness, contrast=(1 - contrast, 1 + contrast))

    def _scale(self, images: Images) -> Images:
        transforms = self.transforms
        if transforms.standardize:
            images = standardize(images)
        if transforms.mean or transforms.std:
            channels = images.shape[1]
            images = normalize(
                images, mean=transforms.mean or (0.0,) * channels, std=transforms.std or (1.0,) * channels
            )
        return images


def _choose_target(
    image: Images,
    parts: Float[Tensor, "n m row column"] | None,
    label: Int[Tensor, "n"] | Float[Tensor, "n k"],
    digits: Int[Tensor, "n m"] | None,
) -> tuple[Float[Tensor, "n ..."] | None, Int[Tensor, "n"] | Int[Tensor, "n m"] | None]:
    """What a decoder should reconstruct, and from which capsules: one image of each example, or each of its parts."""
    if parts is not None and digits is not None:
        return parts.unsqueeze(2), digits
    if label.ndim == 1:
        return image.clamp(0.0, 1.0), label  # jitter may leave what a decoder can give
    return None, None
