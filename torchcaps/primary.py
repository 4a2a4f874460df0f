"""Features -> the first capsules, as each of the five papers makes them.

All take a feature map ``(b, channel, row, column)`` and return a map of capsules ``(b, row, column, n, d)``;
``flatten_grid`` turns a map into one set of capsules.
"""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes, length_score, pose_shape, squash

Features = Float[Tensor, "b channel row column"]


def flatten_grid(capsules: Capsules, *, type_first: bool = False) -> Capsules:
    """A map of capsules ``(b, row, column, n, d)`` as one set ``(b, i, d)``, position by position.

    With ``type_first`` the order is (type, row, column) instead, as in Heinsen's published weights.
    """

    # Quoted, as in the nested functions of routings: the compiler of torch 2.6 cannot build such a type.
    def flat(tensor: "Tensor | None", inner: str) -> "Tensor | None":
        if tensor is None:
            return None
        order = "n y x" if type_first else "y x n"
        return rearrange(tensor, f"... y x n{inner} -> ... ({order}){inner}")

    check_capsules(capsules, "flatten_grid")
    if capsules.pose.ndim < 4:
        raise ValueError(f"a map of capsules has the axes (*b, row, column, n, d); got {tuple(capsules.pose.shape)}")
    pose = flat(capsules.pose, " d")
    assert pose is not None
    return Capsules(pose, flat(capsules.score, ""), flat(capsules.variance, " d"))


class SquashedPrimaryCapsules(nn.Module):
    """Sabour 2017: a convolution whose output, read as vectors, is squashed.

    ``coupled`` follows the authors' code, where these capsules pass one round of routing with equal couplings: the
    convolution is divided by the number of types before its bias is added.
    """

    def __init__(
        self, channels: int, types: int, pose: Pose, kernel_size: int = 9, stride: int = 2, *, coupled: bool = False
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, types=types, kernel_size=kernel_size, stride=stride)
        rows, columns = pose_shape(pose)
        self.types, self.coupled = types, coupled
        self.convolution = nn.Conv2d(channels, types * rows * columns, kernel_size, stride)

    def forward(self, features: Features) -> Capsules:
        if self.coupled:
            plain = F.conv2d(features, self.convolution.weight, stride=self.convolution.stride)
            assert self.convolution.bias is not None
            total = plain / self.types + self.convolution.bias[:, None, None]
        else:
            total = self.convolution(features)
        total = rearrange(total, "b (n d) y x -> b y x n d", n=self.types)
        return Capsules(squash(total), length_score(total))


class MatrixPrimaryCapsules(nn.Module):
    """Hinton 2018: at each position a linear map of the features to the pose, and one to the activation."""

    def __init__(self, channels: int, types: int, pose: Pose = (4, 4)) -> None:
        super().__init__()
        check_sizes(channels=channels, types=types)
        rows, columns = pose_shape(pose)
        self.types = types
        self.pose = nn.Conv2d(channels, types * rows * columns, 1)
        self.score = nn.Conv2d(channels, types, 1)

    def forward(self, features: Features) -> Capsules:
        pose = rearrange(self.pose(features), "b (n d) y x -> b y x n d", n=self.types)
        return Capsules(pose, rearrange(self.score(features), "b n y x -> b y x n"))


class NormalizedScorePrimaryCapsules(nn.Module):
    """Heinsen 2019: batch norm and a 1×1 convolution, once for the scores and once for the poses."""

    def __init__(self, channels: int, types: int, pose: Pose = (4, 4)) -> None:
        super().__init__()
        check_sizes(channels=channels, types=types)
        rows, columns = pose_shape(pose)
        self.types = types
        self.score = nn.Sequential(nn.BatchNorm2d(channels), nn.Conv2d(channels, types, 1))
        self.pose = nn.Sequential(nn.BatchNorm2d(channels), nn.Conv2d(channels, types * rows * columns, 1))
        for part in (self.score, self.pose):
            convolution = part[1]
            assert isinstance(convolution, nn.Conv2d)
            assert convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)

    def forward(self, features: Features) -> Capsules:
        pose = rearrange(self.pose(features), "b (n d) y x -> b y x n d", n=self.types)
        return Capsules(pose, rearrange(self.score(features), "b n y x -> b y x n"))


class LayerNormPrimaryCapsules(nn.Module):
    """Tsai 2020: a convolution without bias, then layer normalisation of each capsule; no activations.

    ``scored`` adds the activations that the paper's ablation with activations needs.
    """

    def __init__(
        self,
        channels: int,
        types: int,
        pose: Pose = (4, 4),
        kernel_size: int = 1,
        stride: int = 1,
        *,
        scored: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, types=types, kernel_size=kernel_size, stride=stride)
        rows, columns = pose_shape(pose)
        self.types = types
        self.convolution = nn.Conv2d(channels, types * rows * columns, kernel_size, stride, bias=False)
        self.norm = nn.LayerNorm(rows * columns)
        self.score = nn.Conv2d(channels, types, kernel_size, stride) if scored else None

    def forward(self, features: Features) -> Capsules:
        pose = self.norm(rearrange(self.convolution(features), "b (n d) y x -> b y x n d", n=self.types))
        return Capsules(pose, None if self.score is None else rearrange(self.score(features), "b n y x -> b y x n"))


class NormalizedPrimaryCapsules(nn.Module):
    """Zhao 2020: a convolution without bias that halves the grid, batch norm, squash."""

    def __init__(self, channels: int, types: int, pose: Pose = (4, 4), kernel_size: int = 5, stride: int = 2) -> None:
        super().__init__()
        check_sizes(channels=channels, types=types, kernel_size=kernel_size, stride=stride)
        rows, columns = pose_shape(pose)
        self.types = types
        self.convolution = nn.Conv2d(
            channels, types * rows * columns, kernel_size, stride, padding=kernel_size // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(types * rows * columns)

    def forward(self, features: Features) -> Capsules:
        total = rearrange(self.norm(self.convolution(features)), "b (n d) y x -> b y x n d", n=self.types)
        return Capsules(squash(total), length_score(total))
