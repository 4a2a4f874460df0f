"""The one type that moves through a capsule network, and the letters that name its axes.

The index legend, the same in code, comments and docs:

==========  ==========================================================================
``b``       batch and grid: any number of leading axes, possibly none (``*b``)
``i``       children, the capsules of the layer below
``j``       parents, the capsules of the layer above
``c``       rows of a matrix pose (1 for vector poses)
``d``       columns of a child's pose
``h``       columns of a parent's pose
``p``       a parent's flat pose, ``c * h`` numbers, row-major
==========  ==========================================================================

A vote is ``V_ijch = sum_d W_ijdh pose_icd + B_ijch``: vector poses are ``c = 1``, the matrix poses of the papers are
``c = d = h = 4``.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcaps.kernels import few
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.kernels.library import take_kernels

__all__ = ["Capsules", "Pose", "length_score", "pose_shape", "squash"]

Pose = int | tuple[int, int]
"""How a pose is given: an int for a vector, ``(rows, columns)`` for a matrix."""

Pair = int | tuple[int, int]
"""A size along rows and columns: one number for both, or ``(rows, columns)``."""


class Capsules(NamedTuple):
    """A set of capsules: what each one sees (``pose``) and whether it sees it at all (``score``).

    ``score`` is always the *logit* of the capsule's presence: Heinsen's scores and EM's activations before their
    sigmoid are logits already, and a squashed vector's length is the sigmoid of ``log ‖s‖²``. It is ``None`` where a
    routing has no activations. ``variance`` is the spread of the votes that made each pose, from the routings that
    measure it.

    A named tuple: it unpacks to its three fields. ``capsules.at[0]`` is the first example of a batch.

    Args:
        pose: what each capsule sees; a matrix pose is stored flat, row by row.
        score: logit of presence of each capsule; ``None`` where there is no such thing.
        variance: variance of the votes that made each pose; ``None`` where it is not measured.

    Shape:
        - pose, variance: ``(*b, n, d)`` for ``n`` capsules of ``d`` numbers. A map of capsules is
          ``(b, row, column, n, d)``.
        - score: ``(*b, n)``.

    Example:
        >>> parts = Capsules(pose=torch.zeros(2, 5, 16), score=torch.zeros(2, 5))
        >>> parts.presence.shape, parts.at[0].pose.shape
        (torch.Size([2, 5]), torch.Size([5, 16]))
    """

    pose: Float[Tensor, "*b n d"]
    score: Float[Tensor, "*b n"] | None = None
    variance: Float[Tensor, "*b n d"] | None = None

    @property
    def presence(self) -> Float[Tensor, "*b n"]:
        """The probability, 0 to 1, that each capsule's entity is there; 1 for capsules without activations."""
        if self.score is None:
            return torch.ones_like(self.pose[..., 0])
        return self.score.sigmoid()

    def to(self, *args: Any, **kwargs: Any) -> "Capsules":
        """The same capsules on another device or of another number type.

        Args:
            *args: as for ``torch.Tensor.to``.
            **kwargs: as for ``torch.Tensor.to``.

        Returns:
            Capsules with every tensor moved.

        Example:
            >>> Capsules(torch.zeros(2, 5, 16)).to(torch.float64).pose.dtype
            torch.float64
        """
        return self._each(lambda part: part.to(*args, **kwargs))

    def detach(self) -> "Capsules":
        """The same capsules without their history: no gradient passes through them.

        Returns:
            Capsules that share memory with these.

        Example:
            >>> Capsules(torch.zeros(2, 5, 16, requires_grad=True)).detach().pose.requires_grad
            False
        """
        return self._each(Tensor.detach)

    def flatten(self, start_dim: int = 1) -> "Capsules":
        """A map of capsules as one set, position by position; ``flatten_grid`` has other orders.

        Args:
            start_dim: first axis of the map; those before it are left alone.

        Shape:
            - pose: ``(b, *grid, n, d)`` to ``(b, i, d)``, with all capsules of the grid in one row.

        Returns:
            One set of capsules for each example.

        Example:
            >>> Capsules(torch.zeros(2, 6, 6, 8, 16), torch.zeros(2, 6, 6, 8)).flatten().pose.shape
            torch.Size([2, 288, 16])
        """
        last = self.pose.ndim - 2
        if not 0 <= start_dim <= last:
            raise ValueError(f"start_dim is 0 to {last} for poses of shape {tuple(self.pose.shape)}; got {start_dim}")
        return self._each(lambda part: part.flatten(start_dim, last))

    @property
    def at(self) -> "BatchIndex":
        """Some examples of the batch, or positions of a grid: ``capsules.at[0]``, ``capsules.at[:4]``."""
        return BatchIndex(self)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Capsules":
        score = None if self.score is None else change(self.score)
        return Capsules(change(self.pose), score, None if self.variance is None else change(self.variance))


class BatchIndex:
    """Capsules that are indexed over their axes ``*b``, all tensors alike.

    ``Capsules`` itself is a named tuple, whose own indices are those of its fields: exporters rely on them.
    """

    def __init__(self, capsules: Capsules) -> None:
        self.capsules = capsules

    def __getitem__(self, index: Any) -> Capsules:
        shape = self.capsules.pose.shape
        whole = _over_batch(index, len(shape) - 2, shape)
        return self.capsules._each(lambda part: part[whole])


def _over_batch(index: Any, axes: int, shape: torch.Size) -> tuple[Any, ...]:
    """An index of so many batch axes without an ellipsis, so that it means the same for poses and for scores."""
    parts = index if isinstance(index, tuple) else (index,)
    used = sum(_axes_used(part) for part in parts)
    if used > axes:
        raise ValueError(
            f"capsules of shape {tuple(shape)} have {axes} axes of the batch to index; got an index of {used}. Single "
            "capsules and the numbers of their poses are in .pose and .score"
        )
    ellipses = [place for place, part in enumerate(parts) if part is Ellipsis]
    if not ellipses:
        return parts
    return (*parts[: ellipses[0]], *(slice(None),) * (axes - used), *parts[ellipses[0] + 1 :])


def _axes_used(part: object) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype == torch.bool else 1


def pose_shape(pose: Pose, name: str = "pose") -> tuple[int, int]:
    """``(c, d)`` of a pose given as an int (a vector) or as rows and columns (a matrix).

    Args:
        pose: the pose.
        name: what a message calls it.

    Returns:
        Rows and columns.

    Example:
        >>> pose_shape(8), pose_shape((4, 4))
        ((1, 8), (4, 4))
    """
    sizes = tuple(pose) if isinstance(pose, Sequence) else (1, pose)
    if len(sizes) != 2 or not all(_is_size(size) for size in sizes):
        raise ValueError(
            f"{name} is a number of at least 1, or (rows, columns) of at least 1 each, such as 16 or (4, 4); got {pose}"
        )
    rows, columns = sizes
    return rows, columns


def as_pair(size: Pair, name: str, *, least: int = 1) -> tuple[int, int]:
    """``(rows, columns)`` of a size that is given as one number for both, or as two.

    >>> as_pair(3, "kernel_size"), as_pair((3, 5), "kernel_size")
    ((3, 3), (3, 5))
    """
    sizes = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sizes) != 2 or not all(isinstance(each, Integral) and int(each) >= least for each in sizes):
        raise ValueError(
            f"{name} is a whole number of at least {least}, or (rows, columns) of such numbers; got {name}={size!r}"
        )
    rows, columns = sizes
    return rows, columns


def _is_size(size: object) -> bool:
    return isinstance(size, Integral) and int(size) >= 1


def check_sizes(**sizes: int | None) -> None:
    """Sizes are whole numbers of at least one; ``None`` is a size that is open."""
    for name, size in sizes.items():
        if size is not None and not _is_size(size):
            raise ValueError(f"{name} is a whole number of at least 1; got {name}={size!r}")


def check_capsules(capsules: object, taker: str) -> None:
    """Capsules, and not a tensor of their poses."""
    if isinstance(capsules, Capsules):
        return
    got = f"a tensor of shape {tuple(capsules.shape)}" if isinstance(capsules, Tensor) else f"{capsules!r:.80}"
    raise ValueError(f"{taker} takes Capsules(pose, score); got {got}. Poses alone are Capsules(pose)")


def squash(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Shrink each vector to a length below one, keeping its direction (Sabour 2017, Eq. 1).

    Zero stays zero with gradient zero, and neither tiny nor huge vectors overflow on the way.

    Args:
        total: vectors s.

    Shape:
        - total: ``(*b, d)``; the result has the same shape.

    Returns:
        ``s · ‖s‖ / (1 + ‖s‖²)``, of length 0 to 1.

    Example:
        >>> squash(torch.tensor([3.0, 4.0])).norm()  # 25 / 26
        tensor(0.9615)
    """
    if total.shape[-1] == 0:
        raise ValueError(f"squash needs vectors of at least one number; got shape {tuple(total.shape)}")
    return apply_kernel(_SQUASH, total) if take_kernels(total) else _squash(total)


def _squash(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    # Measured in units of the largest component, where that is above one, the squares cannot overflow. The unit is
    # a constant of the computation: the result does not depend on it.
    unit = total.detach().abs().amax(-1, keepdim=True).clamp_min(1.0)
    scaled = total / unit
    squares = scaled.square().sum(-1, keepdim=True)
    there = squares > 0
    length = torch.where(there, squares, 1.0).sqrt()
    # v = s · ‖s‖ / (1 + ‖s‖²), in units
    return torch.where(there, scaled * (length / (unit.reciprocal().square() + squares)), total * 0.0)


def log_sigmoid(score: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """The logarithm of the presence that a score stands for, exact however absent the capsule is.

    Not ``F.logsigmoid``: exported to ONNX that is -∞ below a score of about -18. Nor ``F.softplus``, which onnxruntime
    lacks in double precision.

    >>> log_sigmoid(torch.tensor([-100.0, 0.0, float("inf")]))
    tensor([-100.0000,   -0.6931,    0.0000])
    """
    if take_kernels(score):  # nobody exports this call
        return F.logsigmoid(score)
    absent = score < 0
    return torch.where(absent, score, 0.0) - torch.where(absent, score, -score).exp().log1p()


def length_score(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """The score whose presence is the length of ``squash(total)``: ``log ‖s‖²``.

    Args:
        total: vectors s.

    Shape:
        - total: ``(*b, d)``; the result is ``(*b,)``.

    Returns:
        The scores.

    Example:
        >>> length_score(torch.tensor([3.0, 4.0])).exp()
        tensor(25.0000)
    """
    return apply_kernel(_LENGTH_SCORE, total) if take_kernels(total) else _length_score(total)


def _length_score(total: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    unit = total.detach().abs().amax(-1, keepdim=True).clamp_min(1.0)
    squares = (total / unit).square().sum(-1)
    # A zero vector is as absent as the number type can say; the clamp keeps its gradient zero instead of infinite.
    return squares.clamp_min(torch.finfo(total.dtype).tiny).log() + 2.0 * unit[..., 0].log()


def squash_and_score(total: Float[Tensor, "*b d"]) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b"]]:
    """``squash(total)`` and ``length_score(total)`` in one call: small layers feel each."""
    if total.shape[-1] == 0 or not take_kernels(total):
        return squash(total), length_score(total)
    return apply_kernel(_SQUASH_AND_SCORE, total)


_SQUASH = Kernel(
    lambda total: few.squash_alone(total.contiguous()),
    lambda tensors, grads, wanted: [few.carry_squash_back(tensors[0].contiguous(), grads[0], None)],
    _squash,
)
_LENGTH_SCORE = Kernel(
    lambda total: few.score_lengths(total.contiguous()),
    lambda tensors, grads, wanted: [few.carry_squash_back(tensors[0].contiguous(), None, grads[0])],
    _length_score,
)
_SQUASH_AND_SCORE = Kernel(
    lambda total: few.squash(total.contiguous()),
    lambda tensors, grads, wanted: [few.carry_squash_back(tensors[0].contiguous(), *grads)],
    lambda total: (_squash(total), _length_score(total)),
)
