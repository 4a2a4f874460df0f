"""Images made harder: distortions of one strength each, and the attacks FGSM and PGD."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps.data import Batch, Dataset
from torchcaps.data.transforms import linear_maps, warp
from torchcaps.lab.evaluation.fitting import Renumbered
from torchcaps.lab.loaders import ImageLoader, Loader, ModelBatch, Subset
from torchcaps.lab.tracing.traces import evaluating
from torchcaps.losses import target_rows
from torchcaps.models.base import device_of

Images = Float[Tensor, "n channel row column"]


class Distortion(NamedTuple):
    """What is done to images by an amount: its unit, the amounts to try, and the amount at which nothing happens."""

    change: Callable[[Images, float], Images]
    unit: str
    amounts: tuple[float, ...]
    rest: float = 0.0


def _warp(
    images: Images,
    *,
    rotation: float = 0.0,
    shear: float = 0.0,
    scale: float = 1.0,
    right: float | Tensor = 0.0,
    down: float | Tensor = 0.0,
) -> Images:
    def of(value: float | Tensor) -> Tensor:
        return images.new_zeros(len(images)) + value

    maps = linear_maps(of(rotation), of(shear), torch.stack((of(scale), of(scale)), -1))
    # The edge goes on: a black frame around a bright background would be a distortion of its own.
    return warp(images, maps, torch.stack((of(down), of(right)), -1), fill="edge")


def _noisy(images: Images, amount: float) -> Images:
    """Gaussian noise, the same for the same images' shape, cut off at 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(images.shape, generator=generator, dtype=torch.float32).to(images)
    return (images + amount * noise).clamp(0.0, 1.0)


def _occlude(images: Images, amount: float) -> Images:
    """A black square of this share of the area, at a place drawn for each image."""
    height, width = images.shape[-2:]
    side_y, side_x = round(height * amount**0.5), round(width * amount**0.5)
    generator = torch.Generator().manual_seed(0)
    top = torch.randint(height - side_y + 1, (len(images), 1, 1, 1), generator=generator).to(images.device)
    left = torch.randint(width - side_x + 1, (len(images), 1, 1, 1), generator=generator).to(images.device)
    row = torch.arange(height, device=images.device)[None, None, :, None]
    column = torch.arange(width, device=images.device)[None, None, None, :]
    hidden = (row >= top) & (row < top + side_y) & (column >= left) & (column < left + side_x)
    return images.masked_fill(hidden, 0.0)


def _move(images: Images, amount: float) -> Images:
    """By a share of the side, in a direction drawn for each image."""
    angle = 2 * torch.pi * torch.rand(len(images), generator=torch.Generator().manual_seed(0)).to(images)
    return _warp(images, right=amount * images.shape[-1] * angle.cos(), down=amount * images.shape[-2] * angle.sin())


DISTORTIONS: dict[str, Distortion] = {
    "rotation": Distortion(
        lambda images, amount: _warp(images, rotation=amount),
        "degrees",
        (-60.0, -45.0, -30.0, -15.0, 0.0, 15.0, 30.0, 45.0, 60.0),
    ),
    "shear": Distortion(
        lambda images, amount: _warp(images, shear=amount), "columns per row", (-0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6)
    ),
    "scale": Distortion(
        lambda images, amount: _warp(images, scale=amount), "times", (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5), 1.0
    ),
    "translation": Distortion(_move, "share of the side", (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)),
    "noise": Distortion(_noisy, "standard deviation", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    "occlusion": Distortion(_occlude, "share of the area", (0.0, 0.05, 0.1, 0.2, 0.3)),
}


def distort(images: Images, name: str, amount: float) -> Images:
    """Images, 0 to 1, distorted by an amount.

    >>> distort(torch.ones(1, 1, 8, 8), "occlusion", 0.25).mean().item()
    0.75
    """
    if name not in DISTORTIONS:
        raise ValueError(f"no distortion {name!r}; there are {', '.join(DISTORTIONS)}")
    distortion = DISTORTIONS[name]
    return images if amount == distortion.rest else distortion.change(images, amount)


class DistortedDataset(Dataset):
    """Another dataset's examples with their images changed; parts of an image are left out, as they would no longer
    fit it."""

    def __init__(self, dataset: Dataset, change: Callable[[Images], Images]) -> None:
        self.dataset, self.change = dataset, change
        self.name, self.split, self.classes = dataset.name, dataset.split, dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor) -> Batch:
        found = self.dataset.batch(indices)
        kept = {name: values for name, values in found.metadata.items() if name != "parts"}
        return Batch(self.change(found.image), found.label, kept)


class _DistortedInputs:
    """A loader whose inputs are changed after preparation, for loaders of which no more is known."""

    def __init__(self, loader: Loader, change: Callable[[Images], Images]) -> None:
        self.loader, self.change, self.classes = loader, change, loader.classes

    def __len__(self) -> int:
        return len(self.loader)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> ModelBatch:
        batch = self.loader.batch(indices, generator)
        if batch.inputs[0].ndim != 4:
            raise ValueError(
                f"inputs of shape {tuple(batch.inputs[0].shape)} are no images, which alone can be distorted"
            )
        return batch._replace(inputs=(self.change(batch.inputs[0]), *batch.inputs[1:]))


def distorted_loader(loader: Loader, change: Callable[[Images], Images]) -> Loader:
    """A loader of changed images: changed before they are prepared, wherever it can be seen how that is done."""
    if isinstance(loader, ImageLoader):
        return ImageLoader(DistortedDataset(loader.dataset, change), loader.transforms)
    if isinstance(loader, Subset):
        return Subset(distorted_loader(loader.loader, change), loader.length, loader.select)
    if isinstance(loader, Renumbered):
        return Renumbered(distorted_loader(loader.loader, change), loader.classes)
    return _DistortedInputs(loader, change)


Attack = Literal["fgsm", "pgd"]


def attack(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    target: Int[Tensor, "n"] | Float[Tensor, "n k"],
    *,
    eps: float,
    method: Attack = "fgsm",
    steps: int = 10,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> Float[Tensor, "n channel row column"]:
    """Move every number of the images by at most ``eps`` so that a wrong class rises above the right one.

    ``fgsm`` goes the whole way in one step, along the sign of the gradient (Goodfellow 2014); ``pgd`` in ``steps`` of
    2.5 eps / steps, back into the ball after each (Madry 2017), from the image itself. ``bounds`` are the numbers that
    an image may have; ``None`` for inputs that are standardized.
    """
    if eps < 0 or steps < 1:
        raise ValueError(f"an attack needs eps from 0 up and at least one step; got eps={eps}, steps={steps}")
    if method not in ("fgsm", "pgd"):
        raise ValueError(f"no attack {method!r}; there are 'fgsm' and 'pgd'")
    if eps == 0:
        return images.detach().clone()
    images, target = images.to(device_of(model)), target.to(device_of(model))
    count, stride = (1, eps) if method == "fgsm" else (steps, 2.5 * eps / steps)
    moved = images.detach().clone()
    with evaluating(model), torch.enable_grad():
        for _ in range(count):
            moved.requires_grad_(True)
            (gradient,) = torch.autograd.grad(lead_of_the_wrong(model(moved).logits, target).sum(), moved)
            moved = moved.detach() + stride * gradient.sign()
            moved = torch.minimum(torch.maximum(moved, images - eps), images + eps)
            if bounds is not None:
                moved = moved.clamp(*bounds)
    return moved.detach()


def lead_of_the_wrong(
    logits: Float[Tensor, "n k"], target: Int[Tensor, "n"] | Float[Tensor, "n k"]
) -> Float[Tensor, "n"]:
    """How far the highest logit of a wrong class is above the lowest of a right one (Carlini and Wagner 2016).

    Not the loss of training: the margin loss and the spread loss are flat where the right class leads by their margin,
    and an attack along a gradient of zero would leave those images as they are and call the network robust.
    """
    present = target_rows(target, logits) > 0.5
    wrong = logits.masked_fill(present, -torch.inf).amax(-1)
    right = logits.masked_fill(~present, torch.inf).amin(-1)
    return wrong - right
