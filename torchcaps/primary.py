"""Features -> the first capsules, as each of the papers makes them.

All take a feature map ``(b, channel, row, column)`` and return a map of capsules ``(b, row, column, n, d)``;
``flatten_grid`` turns a map into one set of capsules.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import (
    Capsules,
    Pair,
    Pose,
    as_pair,
    check_capsules,
    check_sizes,
    pose_shape,
)
from torchcaps.parameters import Device, Factory, reset_children
from torchcaps.squashing import check_squash, squash_to_capsules

Features = Float[Tensor, "b channel row column"]


def flatten_grid(capsules: Capsules, *, type_first: bool = False) -> Capsules:
    """A map of capsules as one set, position by position.

    Args:
        capsules: a map of capsules.
        type_first: whether the order is (type, row, column) instead, as in Heinsen's published weights.

    Shape:
        - capsules: poses ``(*b, row, column, n, d)`` to ``(*b, i, d)``, with all capsules of the grid in one row.

    Returns:
        One set of capsules for each example.

    Example:
        >>> flatten_grid(Capsules(torch.zeros(2, 6, 6, 8, 16))).pose.shape
        torch.Size([2, 288, 16])
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


class PrimaryCapsules(nn.Module):
    """What all primary capsules share: their sizes.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
    """

    def __init__(self, in_channels: int, out_caps: int, out_pose: Pose) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, out_caps=out_caps)
        rows, columns = pose_shape(out_pose, "out_pose")
        self.in_channels, self.out_caps, self.out_pose = in_channels, out_caps, out_pose
        self.pose_size = rows * columns

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset_children(self)

    def extra_repr(self) -> str:
        return f"out_caps={self.out_caps}, out_pose={self.out_pose}"

    def forward(self, features: Features) -> Capsules:
        """The capsules of every position.

        Args:
            features: a feature map ``(b, channel, row, column)``.

        Returns:
            A map of capsules ``(b, row', column', out_caps, out_pose)``.
        """
        raise NotImplementedError

    def _as_poses(self, channels: Features) -> Float[Tensor, "b y x n d"]:
        return rearrange(channels, "b (n d) y x -> b y x n d", n=self.out_caps)


class SquashedPrimaryCapsules(PrimaryCapsules):
    """Sabour 2017: a convolution whose output, read as vectors, is squashed.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        coupled: as in the authors' code, where these capsules pass one round of routing with equal couplings: the
            convolution is divided by the number of capsules before its bias is added.
        squash: how vectors are squashed, a key of ``torchcaps.squashing.SQUASHES``.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> SquashedPrimaryCapsules(64, out_caps=8, out_pose=16)(torch.zeros(2, 64, 20, 20)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose,
        *,
        kernel_size: Pair = 9,
        stride: Pair = 2,
        coupled: bool = False,
        squash: str = "rational",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        self.coupled, self.squash = coupled, check_squash(squash)
        self.convolution = nn.Conv2d(in_channels, out_caps * self.pose_size, *window, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, squash={self.squash!r}" + (", coupled=True" if self.coupled else "")

    def forward(self, features: Features) -> Capsules:
        if self.coupled:
            plain = F.conv2d(features, self.convolution.weight, stride=self.convolution.stride)
            assert self.convolution.bias is not None
            total = plain / self.out_caps + self.convolution.bias[:, None, None]
        else:
            total = self.convolution(features)
        return squash_to_capsules(self._as_poses(total), self.squash)


class MatrixPrimaryCapsules(PrimaryCapsules):
    """Hinton 2018: at each position a linear map of the features to the pose, and one to the activation.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row, column, out_caps, out_pose)``, scores ``(b, row, column, out_caps)``.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> MatrixPrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        self.pose = nn.Conv2d(in_channels, out_caps * self.pose_size, 1, device=device, dtype=dtype)
        self.score = nn.Conv2d(in_channels, out_caps, 1, device=device, dtype=dtype)

    def forward(self, features: Features) -> Capsules:
        return Capsules(self._as_poses(self.pose(features)), rearrange(self.score(features), "b n y x -> b y x n"))


class NormalizedScorePrimaryCapsules(PrimaryCapsules):
    """Heinsen 2019: batch norm and a 1×1 convolution, once for the scores and once for the poses.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row, column, out_caps, out_pose)``, scores ``(b, row, column, out_caps)``.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> NormalizedScorePrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).score.shape
        torch.Size([2, 6, 6, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        factory: Factory = {"device": device, "dtype": dtype}
        self.score = _normed_map(in_channels, out_caps, factory)
        self.pose = _normed_map(in_channels, out_caps * self.pose_size, factory)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        self._draw()

    def _draw(self) -> None:
        for part in (self.score, self.pose):
            convolution = part[1]
            assert isinstance(convolution, nn.Conv2d)
            assert convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)

    def forward(self, features: Features) -> Capsules:
        return Capsules(self._as_poses(self.pose(features)), rearrange(self.score(features), "b n y x -> b y x n"))


def _normed_map(in_channels: int, out_channels: int, factory: Factory) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(in_channels, **factory), nn.Conv2d(in_channels, out_channels, 1, **factory))


class LayerNormPrimaryCapsules(PrimaryCapsules):
    """Tsai 2020: a convolution without bias, then layer normalization of each capsule; no activations.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        scored: whether to add the activations that the paper's ablation with activations needs.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)`` or none.

    Returns:
        A map of ``Capsules``.

    Example:
        >>> LayerNormPrimaryCapsules(32, out_caps=8)(torch.zeros(2, 32, 6, 6)).pose.shape
        torch.Size([2, 6, 6, 8, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        kernel_size: Pair = 1,
        stride: Pair = 1,
        scored: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        factory: Factory = {"device": device, "dtype": dtype}
        self.convolution = nn.Conv2d(in_channels, out_caps * self.pose_size, *window, bias=False, **factory)
        self.norm = nn.LayerNorm(self.pose_size, **factory)
        self.score = nn.Conv2d(in_channels, out_caps, *window, **factory) if scored else None

    def forward(self, features: Features) -> Capsules:
        pose = self.norm(self._as_poses(self.convolution(features)))
        return Capsules(pose, None if self.score is None else rearrange(self.score(features), "b n y x -> b y x n"))


class NormalizedPrimaryCapsules(PrimaryCapsules):
    """Zhao 2020: a convolution without bias that halves the grid, batch norm, squash.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair. The features are padded by
            half of it.
        stride: steps from capsule to capsule.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> NormalizedPrimaryCapsules(64, out_caps=4)(torch.zeros(2, 64, 8, 8)).pose.shape
        torch.Size([2, 4, 4, 4, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose = (4, 4),
        *,
        kernel_size: Pair = 5,
        stride: Pair = 2,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        tall, wide = as_pair(kernel_size, "kernel_size")
        channels, factory = out_caps * self.pose_size, Factory(device=device, dtype=dtype)
        self.convolution = nn.Conv2d(
            in_channels,
            channels,
            (tall, wide),
            as_pair(stride, "stride"),
            (tall // 2, wide // 2),
            bias=False,
            **factory,
        )
        self.norm = nn.BatchNorm2d(channels, **factory)

    def forward(self, features: Features) -> Capsules:
        total = self._as_poses(self.norm(self.convolution(features)))
        return squash_to_capsules(total)


class DepthwisePrimaryCapsules(PrimaryCapsules):
    """Efficient-CapsNet 2021: each channel by itself becomes a number of a pose, by a kernel that may be as large as
    the map; neighboring channels are one capsule, which is squashed.

    Args:
        in_channels: channels of the features.
        out_caps: capsules of each position; all their numbers together are as many as channels, or a multiple.
        out_pose: their pose, an int for a vector or ``(rows, columns)`` for a matrix.
        kernel_size: rows and columns that a capsule sees: one number for both, or a pair.
        stride: steps from capsule to capsule.
        squash: how vectors are squashed, a key of ``torchcaps.squashing.SQUASHES``.
        device: where the parameters are made.
        dtype: number type of the parameters.

    Shape:
        - features: ``(b, in_channels, row, column)``.
        - result: poses ``(b, row', column', out_caps, out_pose)``, scores ``(b, row', column', out_caps)``.

    Returns:
        A map of ``Capsules``; a score is the logit of its pose's length.

    Example:
        >>> DepthwisePrimaryCapsules(128, out_caps=16, out_pose=8, kernel_size=9)(torch.zeros(2, 128, 9, 9)).pose.shape
        torch.Size([2, 1, 1, 16, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_caps: int,
        out_pose: Pose,
        *,
        kernel_size: Pair = 9,
        stride: Pair = 1,
        squash: str = "exponential",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_caps, out_pose)
        numbers = out_caps * self.pose_size
        if numbers % in_channels:
            raise ValueError(
                f"{out_caps} capsules of {self.pose_size} numbers are {numbers}, which is no multiple of the "
                f"{in_channels} channels; give in_channels={numbers}, or other out_caps and out_pose"
            )
        window = as_pair(kernel_size, "kernel_size"), as_pair(stride, "stride")
        self.squash = check_squash(squash)
        self.convolution = nn.Conv2d(in_channels, numbers, *window, groups=in_channels, device=device, dtype=dtype)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        self._draw()

    def _draw(self) -> None:
        assert self.convolution.bias is not None
        nn.init.xavier_uniform_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, squash={self.squash!r}"

    def forward(self, features: Features) -> Capsules:
        weight, bias = self.convolution.weight, self.convolution.bias
        whole = tuple(features.shape[-2:]) == self.convolution.kernel_size
        if whole and len(weight) == self.in_channels and bias is not None:
            # One dot product for each channel; a grouped convolution takes many times as long for it.
            numbers = (features * weight.squeeze(1)).sum((-2, -1)) + bias
            total = rearrange(numbers, "b (n d) -> b 1 1 n d", n=self.out_caps)
        else:
            total = self._as_poses(self.convolution(features))
        return squash_to_capsules(total, self.squash)
