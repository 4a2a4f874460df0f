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
    primary: Capsules,
    steps: Sequence[RoutingStep],
    *,
    num_iters: int,
    mode: Mode = "concurrent",
    last_only: bool = False,
) -> list[Capsules]:
    """Route through a stack of layers, all of them in every iteration (Tsai 2020, Procedure 2).

    The first iteration goes up the stack, layer by layer. From the second on, all layers step at the same time: each
    reads its neighbors as they were after the iteration before.

    Args:
        primary: capsules below the first layer.
        steps: for each layer a function from its children and its parents of the step before (``None`` the first time)
            to its parents: ``layer.step``.
        num_iters: iterations.
        mode: ``"concurrent"``; or ``"sequential"``, the paper's ablation B, in which every layer finishes its
            iterations before the next one begins.
        last_only: whether to return the last layer alone, and to leave out what it never hears of: news go up by one
            layer in an iteration, so that those of a lower layer's last steps do not arrive.

    Returns:
        The capsules of each layer, the last layer's last.

    Example:
        >>> import torch, torchcaps as tc
        >>> first, second = (tc.DenseCapsules(6, 4, 6, 4, "inverted_attention") for _ in range(2))
        >>> primary = tc.Capsules(torch.randn(2, 6, 4))
        >>> [layer.pose.shape for layer in concurrent_routing(primary, [first.step, second.step], num_iters=2)]
        [torch.Size([2, 6, 4]), torch.Size([2, 6, 4])]
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
    for iterations_left in reversed(range(num_iters - first_pass)):
        arriving = min(iterations_left + 1, len(steps)) if last_only else len(steps)
        heard = len(steps) - arriving  # the first layer whose news will arrive
        # The comprehension reads the old list throughout, so no layer sees another's new state.
        layers = [
            *layers[: heard + 1],
            *(
                step(below, above)
                for step, below, above in zip(steps[heard:], layers[heard:-1], layers[heard + 1 :], strict=True)
            ),
        ]
    return layers[-1:] if last_only else layers[1:]
