"""Layers of published repositories, each with the layer of ours that does the same.

A peer says where its class is, how its layer is made, what it is called with and where the parents' poses are in the
result. Nothing of its code is here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn

from torchcaps import Capsules, ConvCapsules, DenseCapsules, VectorRouting

KERNEL, STRIDE = 3, 2  # of all convolutions
Step = tuple[list[Tensor], Callable[[], object]]
"""What gradients are taken of, and the forward pass."""


class LayerSizes(NamedTuple):
    """LayerSizes of a layer: dense, or a convolution where there is a grid."""

    examples: int
    children: int  # of each position, where there is a grid
    pose: int  # numbers; rows × columns of a square matrix
    parents: int
    parent_pose: int
    grid: int | None = None

    @property
    def child_grid(self) -> tuple[int, ...]:
        return () if self.grid is None else (self.grid, self.grid)

    @property
    def parent_grid(self) -> tuple[int, ...]:
        return tuple((side - KERNEL) // STRIDE + 1 for side in self.child_grid)

    @property
    def parent_shape(self) -> tuple[int, ...]:
        return (self.examples, *self.parent_grid, self.parents, self.parent_pose)

    def describe(self) -> str:
        sizes = f"{self.examples} × {self.children:,} children of {self.pose}"
        parents = f"{self.parents} of {self.parent_pose}"
        if self.grid is None:
            return f"{sizes} → {parents}"
        return f"{sizes} on {self.grid}×{self.grid} → {parents}, {KERNEL}×{KERNEL} stride {STRIDE}"


@dataclass(frozen=True)
class Task:
    """A layer that others have too, and ours in a training step."""

    name: str
    title: str
    sizes: LayerSizes
    ours: Callable[[LayerSizes], Step]


@dataclass(frozen=True)
class Peer:
    """A layer of a published repository, for one task."""

    task: Task
    repository: str
    commit: str  # the version that these lines are written for
    file: str
    kind: str
    make: Callable[[Any, LayerSizes], nn.Module]  # of the class
    arguments: Callable[[LayerSizes], tuple[Any, ...]]  # of a call; tensors get gradients
    read: Callable[[Any, LayerSizes], Tensor]  # poses of the result, as (examples, *grid, parents, pose)

    @property
    def folder(self) -> str:
        return self.repository.split("/")[1]

    @property
    def name(self) -> str:
        return f"{self.task.name}-{self.repository.split('/')[0]}"


def _poses(*shape: int) -> Tensor:
    return (torch.randn(shape) * 0.3).requires_grad_()


def _presences(*shape: int) -> Tensor:
    return (torch.rand(shape) * 0.8 + 0.1).requires_grad_()


def _matrix(pose: int) -> tuple[int, int]:
    if (side := isqrt(pose)) ** 2 != pose:
        raise ValueError(f"pose of {pose} numbers is not a square matrix")
    return side, side


def _children(s: LayerSizes) -> tuple[Tensor, Tensor]:
    """Poses and scores."""
    return _poses(s.examples, *s.child_grid, s.children, s.pose), _poses(s.examples, *s.child_grid, s.children)


def _dynamic(s: LayerSizes) -> Step:
    layer = DenseCapsules(s.children, s.pose, s.parents, s.parent_pose, "dynamic")
    pose, _ = _children(s)
    return [pose, *layer.parameters()], lambda: layer(Capsules(pose)).pose


def _heinsen(s: LayerSizes) -> Step:
    layer = DenseCapsules(None, _matrix(s.pose), s.parents, _matrix(s.parent_pose), "heinsen")
    pose, score = _children(s)
    return [pose, score, *layer.parameters()], lambda: layer(Capsules(pose, score))


def _vectors(s: LayerSizes) -> Step:
    layer = VectorRouting(None, s.pose, s.parents, s.parent_pose)
    pose, _ = _children(s)
    return [pose, *layer.parameters()], lambda: layer(pose)


def _em(s: LayerSizes) -> Step:
    # Theirs route every receptive field alone.
    sizes = (s.children, _matrix(s.pose), s.parents, _matrix(s.parent_pose))
    layer = ConvCapsules(*sizes, KERNEL, STRIDE, "em", competition="field")
    pose, score = _children(s)
    return [pose, score, *layer.parameters()], lambda: layer(Capsules(pose, score))


def _inverted_attention(s: LayerSizes) -> Step:
    sizes = (s.children, _matrix(s.pose), s.parents, _matrix(s.parent_pose))
    layer = ConvCapsules(*sizes, KERNEL, STRIDE, "inverted_attention")
    pose, parents = _children(s)[0], _poses(*s.parent_shape)
    return [pose, parents, *layer.parameters()], lambda: layer.step(Capsules(pose), Capsules(parents)).pose


def _self_routing(s: LayerSizes) -> Step:
    layer = ConvCapsules(s.children, s.pose, s.parents, s.parent_pose, KERNEL, STRIDE, "self_routing")
    pose, score = _children(s)
    return [pose, score, *layer.parameters()], lambda: layer(Capsules(pose, score))


DYNAMIC = Task("dynamic", "dynamic routing, 3 iterations", LayerSizes(128, 1152, 8, 10, 16), _dynamic)
HEINSEN = Task("heinsen", "Heinsen 2019, 3 iterations", LayerSizes(20, 5184, 16, 64, 16), _heinsen)
VECTORS = Task("vectors", "Heinsen 2022, 2 iterations", LayerSizes(20, 175, 384, 64, 384), _vectors)
EM = Task("em", "EM routing, 3 iterations", LayerSizes(32, 8, 16, 16, 16, grid=16), _em)
INVERTED = Task(
    "inverted-attention", "inverted attention, one step", LayerSizes(32, 32, 16, 32, 16, grid=16), _inverted_attention
)
SELF = Task("self-routing", "self-routing", LayerSizes(32, 32, 16, 32, 16, grid=8), _self_routing)


def _channels_first(s: LayerSizes) -> tuple[Tensor, Tensor]:
    """Presences and poses as channels of images."""
    return (
        _presences(s.examples, s.children, *s.child_grid),
        _poses(s.examples, s.children * s.pose, *s.child_grid),
    )


def _read_channels_first(found: tuple[Tensor, Tensor], s: LayerSizes) -> Tensor:
    return rearrange(found[1], "b (j p) y x -> b y x j p", p=s.parent_pose)


# With the same weights ours gives the poses of arogozhnikov's and glassroom's layers and of coder3000's self-routing.
# The others take as many operations and compute something else: gram-ai's children compete for a parent instead of
# parents for a child, yl-1993's presences of children cancel, coder3000's EM starts with couplings of one, and apple's
# fields mix positions with numbers of a pose.
PEERS = (
    Peer(
        DYNAMIC,
        "gram-ai/capsule-networks",
        "4e16285",
        "capsule_network.py",
        "CapsuleLayer",
        lambda kind, s: kind(s.parents, s.children, s.pose, s.parent_pose),
        lambda s: (_poses(s.examples, s.children, s.pose),),
        lambda found, s: rearrange(found, "j b 1 1 p -> b j p"),
    ),
    Peer(
        DYNAMIC,
        "arogozhnikov/readable_capsnet",
        "79149cd",
        "capsnet.py",
        "CapsuleLayerWithRouting",
        lambda kind, s: kind(s.children, s.pose, s.parents, s.parent_pose),
        lambda s: (_poses(s.examples, s.children, s.pose), 3),
        lambda found, s: found,
    ),
    Peer(
        HEINSEN,
        "glassroom/heinsen_routing",
        "048a2c0",
        "heinsen_routing/heinsen_routing.py",
        "GenerativeMatrixRouting",
        lambda kind, s: kind(-1, s.parents, *_matrix(s.pose), _matrix(s.parent_pose)[1]),
        lambda s: (_poses(s.examples, s.children), _poses(s.examples, s.children, *_matrix(s.pose))),
        lambda found, s: found[1].flatten(-2),
    ),
    Peer(
        VECTORS,
        "glassroom/heinsen_routing",
        "048a2c0",
        "heinsen_routing/heinsen_routing.py",
        "EfficientVectorRouting",
        lambda kind, s: kind(-1, s.parents, s.pose, s.parent_pose),
        lambda s: (_poses(s.examples, s.children, s.pose),),
        lambda found, s: found,
    ),
    Peer(
        EM,
        "yl-1993/Matrix-Capsules-EM-PyTorch",
        "94afce1",
        "model/capsules.py",
        "ConvCaps",
        lambda kind, s: kind(s.children, s.parents, KERNEL, _matrix(s.pose)[0], STRIDE, 3),
        # Poses and presences in one tensor, all drawn from 0 to 1 as presences are.
        lambda s: (_presences(s.examples, *s.child_grid, s.children * (s.pose + 1)),),
        lambda found, s: rearrange(
            found[..., : s.parents * s.parent_pose], "b y x (j p) -> b y x j p", p=s.parent_pose
        ),
    ),
    Peer(
        EM,
        "coder3000/SR-CapsNet",
        "6657072",
        "modules.py",
        "EmRouting2d",
        lambda kind, s: kind(s.children, s.parents, s.pose, KERNEL, STRIDE, 0, 3),
        _channels_first,
        _read_channels_first,
    ),
    Peer(
        INVERTED,
        "apple/ml-capsules-inverted-attention-routing",
        "53899ae",  # later ones stop at a name that is not defined
        "src/layers.py",
        "CapsuleCONV",
        lambda kind, s: kind(s.children, s.pose, s.parents, s.parent_pose, KERNEL, STRIDE, matrix_pose=True, dp=0.0),
        lambda s: (
            _poses(s.examples, s.children, *s.child_grid, s.pose),
            1,
            _poses(s.examples, s.parents, *s.parent_grid, s.parent_pose),
        ),
        lambda found, s: rearrange(found, "b j y x p -> b y x j p"),
    ),
    Peer(
        SELF,
        "coder3000/SR-CapsNet",
        "6657072",
        "modules.py",
        "SelfRouting2d",
        lambda kind, s: kind(s.children, s.parents, s.pose, s.parent_pose, KERNEL, STRIDE, 0, pose_out=True),
        _channels_first,
        _read_channels_first,
    ),
)
