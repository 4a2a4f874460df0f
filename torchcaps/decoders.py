"""Class capsules -> images: what one capsule's pose says about the picture it came from.

A decoder is told which capsule of each image to decode: that of the label (while training), the most active one (when
the label is not known), or any other. Several at once give several images.
"""

from itertools import pairwise

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps.capsules import Capsules, check_capsules, check_sizes
from torchcaps.parameters import Device, Factory, Resettable

Chosen = Int[Tensor, "b"] | Int[Tensor, "b m"]
Images = Float[Tensor, "b channel row column"]
Reconstruction = Float[Tensor, "b channel row column"] | Float[Tensor, "b m channel row column"]


def most_active(capsules: Capsules, count: int = 1) -> Int[Tensor, "b m"]:
    """The numbers of the capsules with the highest scores, the highest first.

    Args:
        capsules: capsules with scores.
        count: how many of them.

    Shape:
        - capsules: scores ``(b, n)``.
        - result: ``(b, count)``.

    Returns:
        Numbers from 0 to n - 1.

    Example:
        >>> most_active(Capsules(torch.zeros(1, 3, 4), torch.tensor([[0.1, 2.0, 1.0]])), count=2)
        tensor([[1, 2]])
    """
    if capsules.score is None:
        raise ValueError("capsules without scores have no most active one; choose by the logits' argmax instead")
    number = capsules.score.shape[-1]
    if not 1 <= count <= number:
        raise ValueError(f"the {count} most active of {number} capsules; ask for 1 to {number}")
    return capsules.score.topk(count, dim=-1).indices


class Decoder(Resettable):
    """What decoders share: choosing capsules, checking the choice, one image for each.

    A subclass overrides ``decode``.

    Args:
        in_caps: class capsules.
        in_pose: numbers in the pose of each.
        image_shape: channels, rows and columns of the images.
    """

    def __init__(self, in_caps: int, in_pose: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        check_sizes(in_caps=in_caps, in_pose=in_pose)
        self.in_caps, self.in_pose, self.image_shape = in_caps, in_pose, image_shape

    def extra_repr(self) -> str:
        return f"in_caps={self.in_caps}, in_pose={self.in_pose}, image_shape={self.image_shape}"

    def forward(self, capsules: Capsules, chosen: Chosen | None = None) -> Reconstruction:
        """The images of some of the capsules.

        Args:
            capsules: class capsules.
            chosen: which capsule of each example: ``(b,)``, or ``(b, m)`` for several; the most active if left out.

        Returns:
            Images ``(b, channel, row, column)``, or ``(b, m, channel, row, column)``.
        """
        check_capsules(capsules, type(self).__name__)
        expected = (self.in_caps, self.in_pose)
        if tuple(capsules.pose.shape[-2:]) != expected:
            raise ValueError(
                f"this decoder takes {self.in_caps} capsules of {self.in_pose} numbers; got poses of shape "
                f"{tuple(capsules.pose.shape)}"
            )
        if chosen is None:
            chosen = most_active(capsules)[:, 0]
        # Routing gives single precision also where the parameters are in half precision.
        pose = capsules.pose.to(next(self.parameters()).dtype)
        if chosen.ndim == 1:
            return self.decode(pose, chosen)
        several = chosen.shape[1]
        pose = pose.repeat_interleave(several, 0)
        return rearrange(self.decode(pose, chosen.flatten()), "(b m) c y x -> b m c y x", m=several)

    def decode(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Images:
        """One image of each example.

        Args:
            pose: the poses of all class capsules.
            chosen: which capsule of each example.

        Returns:
            Images ``(b, channel, row, column)``, from 0 to 1.
        """
        raise NotImplementedError

    def _mask(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Float[Tensor, "b n"]:
        """All poses in one row, with all but the chosen one set to zero."""
        mask = nn.functional.one_hot(chosen, self.in_caps).to(pose.dtype)
        return rearrange(pose * mask.unsqueeze(-1), "b k d -> b (k d)")


class FullyConnectedDecoder(Decoder):
    """Three layers of all the capsules' poses, with all but the chosen one set to zero (Sabour 2017, Fig. 2).

    Args:
        in_caps: class capsules.
        in_pose: numbers in the pose of each.
        image_shape: channels, rows and columns of the images.
        hidden: sizes of the layers before the pixels.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(b, in_caps, in_pose)``; chosen: ``(b,)`` or ``(b, m)``.
        - result: ``(b, *image_shape)`` or ``(b, m, *image_shape)``.

    Returns:
        Images from 0 to 1.

    Example:
        >>> decoder = FullyConnectedDecoder(10, 16, (1, 28, 28))
        >>> decoder(Capsules(torch.zeros(2, 10, 16)), torch.tensor([3, 7])).shape
        torch.Size([2, 1, 28, 28])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: int,
        image_shape: tuple[int, int, int],
        *,
        hidden: tuple[int, ...] = (512, 1024),
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_caps, in_pose, image_shape)
        factory: Factory = {"device": device, "dtype": dtype}
        sizes = (in_caps * in_pose, *hidden)
        parts: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            parts += [nn.Linear(size, next_size, **factory), nn.ReLU()]
        channels, height, width = image_shape
        pixels = nn.Linear(sizes[-1], channels * height * width, **factory)
        self.layers = nn.Sequential(*parts, pixels, nn.Sigmoid())

    def decode(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Images:
        channels, height, _ = self.image_shape
        return rearrange(self.layers(self._mask(pose, chosen)), "b (c y x) -> b c y x", c=channels, y=height)


class DeconvolutionDecoder(Decoder):
    """The chosen pose alone, made a small map and enlarged four times by transposed convolutions (Zhao 2020, Fig. 6).

    The paper gives the number of parameters; the layers are those of the authors' code.

    Args:
        in_caps: class capsules.
        in_pose: numbers in the pose of each.
        image_shape: channels, rows and columns of the images; rows and columns in fours.
        width: channels of the small map, a multiple of four.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(b, in_caps, in_pose)``; chosen: ``(b,)`` or ``(b, m)``.
        - result: ``(b, *image_shape)`` or ``(b, m, *image_shape)``.

    Returns:
        Images from 0 to 1.

    Example:
        >>> decoder = DeconvolutionDecoder(10, 16, (1, 40, 40))
        >>> decoder(Capsules(torch.zeros(2, 10, 16)), torch.tensor([3, 7])).shape
        torch.Size([2, 1, 40, 40])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: int,
        image_shape: tuple[int, int, int],
        *,
        width: int = 64,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_caps, in_pose, image_shape)
        channels, height, columns = image_shape
        if height % 4 or columns % 4:
            raise ValueError(f"this decoder enlarges four times: an image of {height}×{columns} needs sides in fours")
        if width % 4:
            raise ValueError(f"the decoder's width is halved twice; got {width}, give a multiple of four")
        factory: Factory = {"device": device, "dtype": dtype}
        self.base = (height // 4, columns // 4)
        start = width * self.base[0] * self.base[1]
        self.start = nn.Sequential(
            nn.Linear(in_pose, start, **factory), nn.BatchNorm1d(start, **factory), nn.LeakyReLU(0.3)
        )
        self.enlarge = nn.Sequential(
            nn.ConvTranspose2d(width, width // 2, 5, padding=2, **factory),
            nn.BatchNorm2d(width // 2, **factory),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 2, width // 4, 5, stride=2, padding=2, output_padding=1, **factory),
            nn.BatchNorm2d(width // 4, **factory),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 4, channels, 5, stride=2, padding=2, output_padding=1, **factory),
            nn.Sigmoid(),
        )
        self._draw()

    def _draw(self) -> None:
        for module in self.enlarge:
            if isinstance(module, nn.ConvTranspose2d):
                nn.init.kaiming_normal_(module.weight)

    def decode(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Images:
        alone = pose.gather(1, chosen[:, None, None].expand(-1, 1, pose.shape[-1]))[:, 0]
        height, _ = self.base
        small = rearrange(self.start(alone), "b (y x c) -> b c y x", y=height, x=self.base[1])
        return self.enlarge(small)


class UpsamplingDecoder(Decoder):
    """All poses but the chosen one set to zero, made a small map and enlarged eight times, each doubling followed by a
    convolution without padding (Efficient-CapsNet 2021, smallNORB).

    Args:
        in_caps: class capsules.
        in_pose: numbers in the pose of each.
        image_shape: channels, rows and columns of the images; rows and columns in eights.
        widths: channels of the three convolutions.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - capsules: poses ``(b, in_caps, in_pose)``; chosen: ``(b,)`` or ``(b, m)``.
        - result: ``(b, *image_shape)`` or ``(b, m, *image_shape)``.

    Returns:
        Images from 0 to 1.

    Example:
        >>> decoder = UpsamplingDecoder(5, 16, (2, 48, 48))
        >>> decoder(Capsules(torch.zeros(2, 5, 16)), torch.tensor([3, 4])).shape
        torch.Size([2, 2, 48, 48])
    """

    def __init__(
        self,
        in_caps: int,
        in_pose: int,
        image_shape: tuple[int, int, int],
        *,
        widths: tuple[int, int, int] = (64, 128, 128),
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_caps, in_pose, image_shape)
        channels, height, columns = image_shape
        if height % 8 or columns % 8:
            raise ValueError(f"this decoder doubles three times: an image of {height}×{columns} needs sides in eights")
        factory: Factory = {"device": device, "dtype": dtype}
        self.base = (height // 8 + 2, columns // 8 + 2)  # two rows less after each of four convolutions
        self.start = nn.Linear(in_caps * in_pose, self.base[0] * self.base[1], **factory)
        parts: list[nn.Module] = []
        for before, after in pairwise((1, *widths)):
            double = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            parts += [double, nn.Conv2d(before, after, 3, **factory), nn.LeakyReLU(0.2)]
        self.enlarge = nn.Sequential(*parts, nn.Conv2d(widths[-1], channels, 3, **factory), nn.Sigmoid())

    def decode(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Images:
        return self.enlarge(rearrange(self.start(self._mask(pose, chosen)), "b (y x) -> b 1 y x", y=self.base[0]))
