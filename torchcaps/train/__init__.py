"""Training: the only loop, and the run folder it leaves behind."""

from torchcaps.train.run import Run
from torchcaps.train.scoring import Score, combine, interval, score

__all__ = ["Run", "Score", "combine", "interval", "score"]
