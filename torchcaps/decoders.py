"""Class capsules -> images: what one capsule's pose says about the picture it came from.

A decoder is told which capsule of each image to draw: that of the label (while training), the most active one (when the
label is not known), or any other. Several at once give several images.
"""

from itertools import pairwise

from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps.capsules import Capsules, check_capsules, check_sizes

Chosen = Int[Tensor, "b"] | Int[Tensor, "b m"]
Drawn = Float[Tensor, "b channel row column"] | Float[Tensor, "b m channel row column"]


def most_active(capsules: Capsules, count: int = 1) -> Int[Tensor, "b m"]:
    """The numbers of the capsules with the highest scores, the highest first.

    >>> import torch
    >>> most_active(Capsules(torch.zeros(1, 3, 4), torch.tensor([[0.1, 2.0, 1.0]])), count=2)
    tensor([[1, 2]])
    """
    if capsules.score is None:
        raise ValueError("capsules without scores have no most active one; choose by the logits' argmax instead")
    number = capsules.score.shape[-1]
    if not 1 <= count <= number:
        raise ValueError(f"the {count} most active of {number} capsules; ask for 1 to {number}")
    return capsules.score.topk(count, dim=-1).indices


class Decoder(nn.Module):
    """What decoders share: choosing capsules, checking the choice, drawing one image for each."""

    def __init__(self, classes: int, pose: int, image: tuple[int, int, int]) -> None:
        super().__init__()
        check_sizes(classes=classes, pose=pose)
        self.classes, self.pose, self.image = classes, pose, image

    def forward(self, capsules: Capsules, chosen: Chosen | None = None) -> Drawn:
        """The images of the chosen capsules, or of the most active ones; ``chosen`` of shape ``(b, m)`` gives ``m``
        images of each example."""
        check_capsules(capsules, type(self).__name__)
        expected = (self.classes, self.pose)
        if tuple(capsules.pose.shape[-2:]) != expected:
            raise ValueError(
                f"this decoder takes {self.classes} capsules of {self.pose} numbers; got poses of shape "
                f"{tuple(capsules.pose.shape)}"
            )
        if chosen is None:
            chosen = most_active(capsules)[:, 0]
        # Routing gives single precision also where the parameters are in half precision.
        pose = capsules.pose.to(next(self.parameters()).dtype)
        if chosen.ndim == 1:
            return self.draw(pose, chosen)
        several = chosen.shape[1]
        pose = pose.repeat_interleave(several, 0)
        return rearrange(self.draw(pose, chosen.flatten()), "(b m) c y x -> b m c y x", m=several)

    def draw(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Float[Tensor, "b channel row column"]:
        raise NotImplementedError


class FullyConnectedDecoder(Decoder):
    """Three layers of all the capsules' poses, with all but the chosen one set to zero (Sabour 2017, Fig. 2).

    >>> import torch
    >>> FullyConnectedDecoder(10, 16, (1, 28, 28))(Capsules(torch.zeros(2, 10, 16)), torch.tensor([3, 7])).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(
        self, classes: int, pose: int, image: tuple[int, int, int], hidden: tuple[int, ...] = (512, 1024)
    ) -> None:
        super().__init__(classes, pose, image)
        sizes = (classes * pose, *hidden)
        parts: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            parts += [nn.Linear(size, next_size), nn.ReLU()]
        channels, height, width = image
        self.layers = nn.Sequential(*parts, nn.Linear(sizes[-1], channels * height * width), nn.Sigmoid())

    def draw(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Float[Tensor, "b channel row column"]:
        mask = nn.functional.one_hot(chosen, self.classes).to(pose.dtype)
        channels, height, _ = self.image
        pixels = self.layers(rearrange(pose * mask.unsqueeze(-1), "b k d -> b (k d)"))
        return rearrange(pixels, "b (c y x) -> b c y x", c=channels, y=height)


class DeconvolutionDecoder(Decoder):
    """The chosen pose alone, made a small map and enlarged four times by transposed convolutions (Zhao 2020, Fig. 6).

    The paper gives the number of parameters; the layers are those of the authors' code.

    >>> import torch
    >>> DeconvolutionDecoder(10, 16, (1, 40, 40))(Capsules(torch.zeros(2, 10, 16)), torch.tensor([3, 7])).shape
    torch.Size([2, 1, 40, 40])
    """

    def __init__(self, classes: int, pose: int, image: tuple[int, int, int], width: int = 64) -> None:
        super().__init__(classes, pose, image)
        channels, height, columns = image
        if height % 4 or columns % 4:
            raise ValueError(f"this decoder enlarges four times: an image of {height}×{columns} needs sides in fours")
        if width % 4:
            raise ValueError(f"the decoder's width is halved twice; got {width}, give a multiple of four")
        self.base = (height // 4, columns // 4)
        start = width * self.base[0] * self.base[1]
        self.start = nn.Sequential(nn.Linear(pose, start), nn.BatchNorm1d(start), nn.LeakyReLU(0.3))
        self.enlarge = nn.Sequential(
            nn.ConvTranspose2d(width, width // 2, 5, padding=2),
            nn.BatchNorm2d(width // 2),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 2, width // 4, 5, stride=2, padding=2, output_padding=1),
            nn.BatchNorm2d(width // 4),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 4, channels, 5, stride=2, padding=2, output_padding=1),
            nn.Sigmoid(),
        )
        for module in self.enlarge:
            if isinstance(module, nn.ConvTranspose2d):
                nn.init.kaiming_normal_(module.weight)

    def draw(self, pose: Float[Tensor, "b k d"], chosen: Int[Tensor, "b"]) -> Float[Tensor, "b channel row column"]:
        alone = pose.gather(1, chosen[:, None, None].expand(-1, 1, pose.shape[-1]))[:, 0]
        height, _ = self.base
        small = rearrange(self.start(alone), "b (y x c) -> b c y x", y=height, x=self.base[1])
        return self.enlarge(small)
