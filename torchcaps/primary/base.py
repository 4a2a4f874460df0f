"""What all primary capsules share, and maps of capsules as sets."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from torchcaps.capsules import Capsules, Pose, check_capsules, check_sizes, pose_shape
from torchcaps.parameters import Resettable

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
        >>> import torch
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


class PrimaryCapsules(Resettable):
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

    def _as_scores(self, channels: Features) -> Float[Tensor, "b y x n"]:
        return rearrange(channels, "b n y x -> b y x n")
