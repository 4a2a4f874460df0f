"""Whole layers by any routing, your own too, as large as CapsNet's.

A dense layer by a routing of the package is measured against plain einsum; one by a routing of your own, and every
convolution, against the same routing on a tensor of all votes.
"""

from collections.abc import Callable

import torch

from benchmarks import opponents
from benchmarks.cases import OURS, Case, Target, Work
from benchmarks.small_cases import count_layer_operations, make_pair
from torchcaps import Capsules, ConvCapsules, DenseCapsules
from torchcaps.routing import ROUTINGS, Routing, resolve
from torchcaps.votes import tensor_votes

Sizes = tuple[int, int, int, int, int]
SIZES: Sizes = (128, 1152, 8, 10, 16)  # examples, children, child pose, parents, parent pose: MNIST digit capsules
GRID: Sizes = (8, 16, 8, 16, 4)  # examples, side of the grid, types of children, of parents, side of their poses
BUILT, EINSUM = "tensor of votes", "plain einsum"


def make_layer_case(routing: str | type[Routing], sizes: Sizes = SIZES) -> Case:
    """Forward and backward of a dense layer; the routing says all that is asked of it."""
    kind = resolve(routing)
    examples, children, child_pose, parents, parent_pose = sizes

    def make(run: Callable[[DenseCapsules, Capsules], Capsules]) -> Callable[[], Work]:
        def setup() -> Work:
            torch.manual_seed(0)
            layer = DenseCapsules(children, child_pose, parents, parent_pose, kind)
            return _step(run, layer, Capsules(torch.randn(examples, children, child_pose) * 0.3))

        return setup

    def built(layer: DenseCapsules, capsules: Capsules) -> Capsules:
        votes = torch.einsum("bid,ijdh->bijh", capsules.pose, layer.weight)
        votes = votes if layer.bias is None else votes + layer.bias.squeeze(-2)
        return layer.routing(tensor_votes(votes, capsules.pose), capsules.score)

    title = f"{kind.title}, dense layer: {_describe(sizes)}"
    return Case(title, {OURS: make(lambda layer, capsules: layer(capsules)), BUILT: make(built)}, ())


def make_dense_case(name: str, examples: int = SIZES[0], children: int = SIZES[1]) -> Case:
    """A dense layer by a routing of the package against plain einsum."""

    def make(place: int) -> Callable[[], Work]:
        return lambda: make_pair(name, children, examples, "training")[place]

    title = f"{ROUTINGS[name].title}, dense layer: {_describe((examples, children, *SIZES[2:]))}"
    _, _, child_pose, parents, pose = SIZES
    pairs = examples * children * parents
    return Case(
        title,
        {OURS: make(0), EINSUM: make(1)},
        (Target(EINSUM, 1.0, 1.0),),
        operations=lambda: count_layer_operations(name, pairs, pose, child_pose, child_pose),
    )


def make_conv_case(name: str, sizes: Sizes = GRID) -> Case:
    """A convolution by windows of 3×3 with a stride of 2, in which parents of one window compete."""
    examples, side, types, parents, pose = sizes

    def make(run: Callable[[ConvCapsules, Capsules], Capsules]) -> Callable[[], Work]:
        def setup() -> Work:
            torch.manual_seed(0)
            layer = ConvCapsules(types, (pose, pose), parents, (pose, pose), 3, 2, name, competition="field")
            return _step(run, layer, Capsules(torch.randn(examples, side, side, types, pose * pose) * 0.3))

        return setup

    def built(layer: ConvCapsules, capsules: Capsules) -> Capsules:
        assert capsules.score is not None
        votes = opponents.unfolded_votes(capsules.pose, layer.weight, stride=2)
        if layer.bias is not None:
            votes = votes + layer.bias.flatten(0, 2).flatten(-2)
        children = opponents.unfolded_poses(capsules.pose, 3, 2)
        return layer.routing(tensor_votes(votes, children), opponents.unfolded_scores(capsules.score, 3, 2))

    title = (
        f"{ROUTINGS[name].title}, convolution: {examples} × {types} types of {pose}×{pose} on {side}×{side} → "
        f"{parents} types, 3×3 stride 2"
    )
    contenders = {OURS: make(lambda layer, capsules: layer(capsules)), BUILT: make(built)}
    pairs = examples * ((side - 3) // 2 + 1) ** 2 * 9 * types * parents
    return Case(
        title,
        contenders,
        (Target(BUILT, 1.0, 1.0),),
        operations=lambda: count_layer_operations(name, pairs, pose * pose, pose * pose, pose),
    )


def _step(run: Callable, layer: DenseCapsules | ConvCapsules, capsules: Capsules) -> Work:
    """Forward, and backward into poses and weights."""
    pose = capsules.pose.requires_grad_()
    score = torch.zeros(pose.shape[:-1])
    inputs = [pose, *layer.parameters()]

    def work() -> object:
        found = run(layer, Capsules(pose, score))
        total = sum((each.sin().sum() for each in found if each is not None), torch.zeros(()))
        return torch.autograd.grad(total, inputs, allow_unused=True)

    return work


def _describe(sizes: Sizes) -> str:
    examples, children, child_pose, parents, parent_pose = sizes
    return f"{examples} × {children:,} children of {child_pose} → {parents} of {parent_pose}"


def list_layers(routings: tuple[str, ...] = ()) -> dict[str, Callable[[], Case]]:
    """Dense layers by these routings of your own; without any, dense layers and convolutions by all of the package."""

    def bind(make: Callable[[str], Case], name: str) -> Callable[[], Case]:
        return lambda: make(name)

    if routings:
        return {name: bind(make_layer_case, name) for name in routings}
    dense = {name: bind(make_dense_case, name) for name in ROUTINGS}
    return dense | {f"{name}-conv": bind(make_conv_case, name) for name in ROUTINGS}
