"""Training: the only loop, and the run folder it leaves behind."""

from torchcaps.lab.training.options import Options
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.scoring import Score, combine, interval, score
from torchcaps.lab.training.stopping import DivergedError, StoppedError
from torchcaps.lab.training.training import train

__all__ = ["DivergedError", "Options", "Run", "Score", "StoppedError", "combine", "interval", "score", "train"]
