"""Training: the only loop, and the run folder it leaves behind."""

from torchcaps.train.options import Options
from torchcaps.train.run import Run
from torchcaps.train.scoring import Score, combine, interval, score
from torchcaps.train.stopping import DivergedError, StoppedError
from torchcaps.train.training import train

__all__ = ["DivergedError", "Options", "Run", "Score", "StoppedError", "combine", "interval", "score", "train"]
