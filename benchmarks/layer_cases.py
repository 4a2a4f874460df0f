"""A dense layer by any routing, your own too: our votes against the same routing on a tensor of all votes."""

from collections.abc import Callable

import torch

from benchmarks.cases import OURS, Case, Work
from torchcaps import Capsules, DenseCapsules
from torchcaps.routing import ROUTINGS, Routing, resolve

SIZES = (128, 1152, 8, 10, 16)  # examples, children, child pose, parents, parent pose: MNIST digit capsules
BUILT = "tensor of votes"


def make_layer_case(routing: str | type[Routing], sizes: tuple[int, int, int, int, int] = SIZES) -> Case:
    """Forward and backward of one layer; the routing says all that is asked of it."""
    kind = resolve(routing)
    examples, children, child_pose, parents, parent_pose = sizes

    def make(run: Callable[[DenseCapsules, Capsules], Capsules]) -> Callable[[], Work]:
        def setup() -> Work:
            torch.manual_seed(0)
            layer = DenseCapsules(children, child_pose, parents, parent_pose, kind)
            pose = torch.randn(examples, children, child_pose).requires_grad_()
            score = torch.zeros(examples, children)
            inputs = [pose, *layer.parameters()]

            def work() -> object:
                found = run(layer, Capsules(pose, score))
                total = sum((each.sum() for each in found if each is not None), torch.zeros(()))
                return torch.autograd.grad(total, inputs, allow_unused=True)

            return work

        return setup

    def built(layer: DenseCapsules, capsules: Capsules) -> Capsules:
        votes = torch.einsum("bid,ijdh->bijh", capsules.pose, layer.weight)
        return layer.routing(votes if layer.bias is None else votes + layer.bias.squeeze(-2), capsules.score)

    title = (
        f"{kind.title}, dense layer: {examples} × {children:,} children of {child_pose} → {parents} of {parent_pose}"
    )
    return Case(title, {OURS: make(lambda layer, capsules: layer(capsules)), BUILT: make(built)}, ())


def list_layers(routings: tuple[str, ...] = ()) -> dict[str, Callable[[], Case]]:
    """Cases by the names of these routings; of all in the package if there are none."""

    def make(name: str) -> Callable[[], Case]:
        return lambda: make_layer_case(name)

    return {name: make(name) for name in routings or ROUTINGS}
