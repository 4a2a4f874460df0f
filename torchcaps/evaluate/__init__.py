"""How good a model is: counts, intervals, calibration; crops and ensembles.

``evaluate(model, feed, loss)`` gives an ``Evaluation``; ``ensemble`` makes one of several.
"""

from torchcaps.evaluate.counting import evaluate
from torchcaps.evaluate.evaluation import ClassCounts, Evaluation, ensemble
from torchcaps.evaluate.intervals import over_seeds, student_quantile

__all__ = ["ClassCounts", "Evaluation", "ensemble", "evaluate", "over_seeds", "student_quantile"]
