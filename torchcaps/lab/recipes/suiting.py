"""A recipe whose routing was changed gets a loss that the new routing learns from: each routing names its own."""

from collections.abc import Callable

from torchcaps.lab.recipes.base import AnyRecipe, Loss
from torchcaps.losses import choose_loss
from torchcaps.routing import resolve


def suit_loss(before: AnyRecipe, after: AnyRecipe) -> Loss:
    """The loss of ``after``, which is ``before`` with other fields: the one that it has if its routing is the same or
    learns from it, otherwise the first of the routing's ``suited_losses`` for such labels."""
    loss, name = after.loss, _routing(after)
    if name is None or name == _routing(before):
        return loss
    suited = resolve(name).suited_losses
    kind = loss.kind if loss.kind in suited else choose_loss(suited, multi_label=loss.decision != "argmax")
    # A margin on the agreement itself is for the routing that the recipe had; presences are there for all.
    return Loss(kind, "presence", loss.decision, loss.margin_steps, loss.reconstruction)  # pyright: ignore[reportArgumentType]


def explain_loss(before: AnyRecipe, after: AnyRecipe, say: Callable[[str], None]) -> None:
    """Tell ``say`` which loss a change of the routing brought, or that the one which was asked for does not suit it."""
    name = _routing(after)
    if name is None or name == _routing(before):
        return
    suited = resolve(name).suited_losses
    if after.loss.kind not in suited:
        say(
            f"loss {after.loss.kind}, as asked for; {name} routing may not learn from it: leave out --loss.kind, or "
            f"take {' or '.join(suited)}"
        )
    elif after.loss.kind != before.loss.kind:
        say(
            f"loss {before.loss.kind} → {after.loss.kind}, which suits {name} routing; --loss.kind {before.loss.kind} "
            f"keeps the recipe's own"
        )


def _routing(recipe: AnyRecipe) -> str | None:
    """The name of the model's routing, where it is an option."""
    return getattr(recipe.model, "routing", None)
