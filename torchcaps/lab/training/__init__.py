"""Training: the only loop, and the run folder it leaves behind."""

from torchcaps.lab.training.opening import TrainOptions
from torchcaps.lab.training.run import Run
from torchcaps.lab.training.scoring import Score, combine, interval, score
from torchcaps.lab.training.stopping import DivergedError, StoppedError
from torchcaps.lab.training.training import train

__all__ = ["DivergedError", "Run", "Score", "StoppedError", "TrainOptions", "combine", "interval", "score", "train"]
