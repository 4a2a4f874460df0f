"""How good a model is: counts, intervals, calibration; crops and ensembles.

``evaluate(model, loader, loss)`` gives an ``Evaluation``; ``ensemble`` makes one of several.
"""

from torchcaps.lab.evaluation.evaluation import ClassCounts, Evaluation, ensemble, evaluate
from torchcaps.lab.evaluation.intervals import (
    difference_over_seeds,
    over_seeds,
    shares_over_seeds,
    student_quantile,
    welch_p_value,
)

__all__ = [
    "ClassCounts",
    "Evaluation",
    "difference_over_seeds",
    "ensemble",
    "evaluate",
    "over_seeds",
    "shares_over_seeds",
    "student_quantile",
    "welch_p_value",
]
