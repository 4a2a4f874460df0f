"""What a training is told besides its recipe: nothing of it changes the weights that come out."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainOptions:
    """Where and how to train, and what to keep."""

    device: str = ""  # cpu, cuda, cuda:1; a GPU if there is one if left out
    threads: int | None = None  # threads of torch; torch's own choice if left out
    overwrite: bool = False  # delete the run that is in the folder
    accept_changed_data: bool = False  # go on with data that are not those the run was begun with
    every: int | None = None  # steps between checkpoints; else one every so many seconds
    seconds: float = 60.0  # seconds between checkpoints
    keep_last: int = 2  # checkpoints kept: the last ones, the last but one in case the last is damaged
    keep_best: int = 1  # and the best on validation examples
    results: Path | None = None  # folder for a copy of the record
    overrides: tuple[str, ...] = ()  # what was changed on the command line, for the record
    again: str = "train(recipe, folder, resume=True)"  # what to say to go on after a stop

    def __post_init__(self) -> None:
        for name in ("every", "threads", "keep_last", "keep_best"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')} is {value}; give at least 1")
