"""Routing a whole stack of layers at once (Tsai 2020, Procedure 2)."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from torchcaps.capsules import Capsules
from torchcaps.routing.base import check_iterations

Mode = Literal["concurrent", "sequential"]


@runtime_checkable
class RoutingStep(Protocol):
    """One routing step of one layer: children, and the parents of the step before (``None`` the first time)."""

    def __call__(self, children: Capsules, parents: Capsules | None) -> Capsules: ...


def concurrent_routing(
    primary: Capsules, steps: Sequence[RoutingStep], *, num_iters: int, mode: Mode = "concurrent"
) -> list[Capsules]:
    """Route through a stack of layers and return the capsules of each, the last layer's last.

    The first iteration goes up the stack, layer by layer. From the second on, all layers step at the same time: each
    reads its neighbours as they were after the iteration before. ``mode="sequential"`` is the paper's ablation B:
    every layer finishes its iterations before the next one begins.
    """
    check_iterations(num_iters)
    if not steps:
        raise ValueError("concurrent routing needs at least one layer; got none")
    if mode not in ("concurrent", "sequential"):
        raise ValueError(f"no mode {mode!r}; there are 'concurrent' and 'sequential'")
    first_pass = num_iters if mode == "sequential" else 1
    layers = [primary]
    for step in steps:
        parents = None
        for _ in range(first_pass):
            parents = step(layers[-1], parents)
        assert parents is not None
        layers.append(parents)
    for _ in range(num_iters - first_pass):
        # The comprehension reads the old list throughout, so no layer sees another's new state.
        layers = [
            primary,
            *(step(below, above) for step, below, above in zip(steps, layers[:-1], layers[1:], strict=True)),
        ]
    return layers[1:]
