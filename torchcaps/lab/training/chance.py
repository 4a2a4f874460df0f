"""Whether a model has learned anything: its counts beside those of always answering with the largest class."""

from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.training.scoring import Score
from torchcaps.models import CapsuleNet, Model

FIRST_EPOCHS = 2
"""Passes over the training examples after which a model should be ahead of chance."""
NEAR = 0.05  # balanced accuracy this close to that of a constant answer is no better than it
LARGE = 0.6  # share from which the largest class hides the others


def describe_baseline(found: Score) -> str:
    """Balanced accuracy and the share of the largest class, to stand beside an accuracy; empty if not counted.

    >>> describe_baseline(Score(0.0, 171, 180, (171, 9), (171, 0)))
    'balanced accuracy 50.00 %, majority class 95.00 %'
    """
    named = (("balanced accuracy", found.balanced_accuracy), ("majority class", found.majority_share))
    return ", ".join(f"{name} {100 * share:.2f} %" for name, share in named if share is not None)


def is_chance(found: Score) -> bool:
    """Whether accuracy is not surely above the largest class's share, and balanced accuracy that of one constant
    answer. Examples with several classes are never said to be at chance.

    >>> is_chance(Score(0.0, 54, 150, (50, 50, 50), (50, 4, 0))), is_chance(Score(0.0, 135, 150, (50,) * 3, (45,) * 3))
    (True, False)
    """
    share, balanced = found.majority_share, found.balanced_accuracy
    if share is None or balanced is None or share == 1.0:
        return False
    classes = sum(count > 0 for count in found.counts)
    return found.interval[0] <= share and balanced <= 1 / classes + NEAR


def advise(recipe: AnyRecipe, model: Model, found: Score, epoch: float) -> str:
    """What a model that is at chance should be told about, and what to try."""
    share = found.majority_share or 0.0
    said = (
        f"validation accuracy {found.accuracy:.2%} after epoch {epoch:.1f} is no better than always answering with the "
        f"largest class ({share:.2%}; balanced accuracy {found.balanced_accuracy or 0.0:.2%}); try "
    )
    tries = [f"--optimizer.lr {recipe.optimizer.lr / 3:.2g}"]
    if isinstance(model, CapsuleNet):
        suited = model.suited_losses
        if recipe.loss.kind not in suited:
            tries.insert(0, f"--loss.kind {suited[0]}, which suits this routing")
        if (model.routing_iterations or 1) > 1:
            tries.append("fewer iterations with --routing.num-iters 1")
    if share > LARGE:
        tries.append("more examples of the other classes")
    if not recipe.text.encoder:
        tries.append(f"`torchcaps data show {recipe.data.train}` to see whether labels belong to their images")
    return said + ", ".join(tries[:-1]) + f" or {tries[-1]}"
