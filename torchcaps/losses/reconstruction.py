"""The loss of a decoder's reconstructions."""

from jaxtyping import Bool, Float
from torch import Tensor

from torchcaps.losses.precision import at_least_float32


def reconstruction_errors(
    reconstruction: Float[Tensor, "b *image"],
    image: Float[Tensor, "b *image"],
    present: Bool[Tensor, "b *m"] | None = None,
) -> Float[Tensor, "b"]:
    """Sum of squared differences of each example (Sabour 2017, §4.1).

    Args:
        reconstruction: images of a decoder; several of each example where it has several objects.
        image: the images that they should be.
        present: which reconstructions count; all if left out.

    Shape:
        - reconstruction, image: ``(b, *image)``, or ``(b, m, *image)`` with ``present`` of shape ``(b, m)``.

    Returns:
        A sum for each example, ``(b,)``.

    Example:
        >>> import torch
        >>> reconstruction_errors(torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2))
        tensor([4., 4.])
    """
    if reconstruction.shape != image.shape:
        raise ValueError(
            f"reconstruction of shape {tuple(reconstruction.shape)} for an image of shape {tuple(image.shape)}"
        )
    squares = (at_least_float32(reconstruction) - at_least_float32(image)).square()
    if present is None:
        return squares.flatten(1).sum(-1)
    errors = squares.flatten(present.ndim).sum(-1) * present
    return errors if errors.ndim == 1 else errors.sum(-1)


def reconstruction_loss(
    reconstruction: Float[Tensor, "b *image"], image: Float[Tensor, "b *image"], weight: float = 0.0005
) -> Float[Tensor, ""]:
    """Sum of squared differences of each image, times ``weight``, mean over the batch (Sabour 2017, §4.1).

    Args:
        reconstruction: images of a decoder.
        image: the images that they should be.
        weight: what the sum is multiplied by.

    Shape:
        - reconstruction, image: ``(b, *image)``.

    Returns:
        The mean over the batch.

    Example:
        >>> import torch
        >>> round(reconstruction_loss(torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2)).item(), 4)
        0.002
    """
    return weight * reconstruction_errors(reconstruction, image).mean()
