"""Losses by name."""

from collections.abc import Sequence

from torchcaps.losses.classification import ClassificationLoss, MarginLoss, SpreadLoss
from torchcaps.losses.entropy import BinaryCrossEntropyLoss, CrossEntropyLoss, NLLLoss

LOSSES: dict[str, type[ClassificationLoss]] = {
    "margin": MarginLoss,
    "spread": SpreadLoss,
    "cross_entropy": CrossEntropyLoss,
    "binary_cross_entropy": BinaryCrossEntropyLoss,
    "nll": NLLLoss,
}


def choose_loss(suited: Sequence[str], *, multi_label: bool = False) -> str:
    """The name of the first loss that fits the labels, of those that suit a routing.

    Args:
        suited: names of losses, best first (``Routing.suited_losses``).
        multi_label: whether an example may have several classes.

    Returns:
        A name of ``LOSSES``.

    Example:
        >>> choose_loss(("cross_entropy", "binary_cross_entropy"), multi_label=True)
        'binary_cross_entropy'
    """
    for name in suited:
        if name not in LOSSES:
            raise ValueError(f"no loss {name!r}; there are {', '.join(map(repr, LOSSES))}")
        if LOSSES[name].multi_label or not multi_label:
            return name
    raise ValueError(f"none of the losses {', '.join(map(repr, suited))} takes several classes of one example")
