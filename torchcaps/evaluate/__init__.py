"""How good a model is: counts, intervals, calibration; crops and ensembles.

``evaluate(model, feed, loss)`` gives an ``Evaluation``; ``combine`` makes an ensemble of several.
"""

from torchcaps.evaluate.counting import evaluate
from torchcaps.evaluate.evaluation import ClassCounts, Evaluation, average, combine
from torchcaps.evaluate.intervals import Interval, over_seeds, student_quantile, wilson

__all__ = [
    "ClassCounts",
    "Evaluation",
    "Interval",
    "average",
    "combine",
    "evaluate",
    "over_seeds",
    "student_quantile",
    "wilson",
]
