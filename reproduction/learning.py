"""A study of how fast networks learn: accuracy on training batches over the epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from reproduction.base import CampaignScale
from reproduction.measured import Measured, StudyRun, by_network, count

PIECES = 20  # of a training: the accuracy of single batches is noise


def learning(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Accuracy in training by epoch, and on test images in the end. Networks come two by two: who is compared."""
    from reproduction.learning_figure import draw_learning

    curves = {
        name: np.stack([curve(each.run.metrics(), each.run.recipe.epochs) for each in seeds])
        for name, seeds in by_network(subjects).items()
    }
    tests = {name: [_test(each) for each in seeds] for name, seeds in by_network(subjects).items()}
    half = PIECES // 2
    rows = [
        (name, [100 * float(one[:half].mean()) for one in seeds], [100 * float(one[-1]) for one in seeds], tests[name])
        for name, seeds in curves.items()
    ]
    columns = ("network", "training, first half, %", f"training, last {100 // PIECES} %, %", "test")
    about = (
        f"Accuracy on training batches, in {PIECES} pieces of the training, as the network was then; test at the end."
    )
    epochs = subjects[0].run.recipe.epochs
    numbers = {name: seeds.tolist() for name, seeds in curves.items()}
    return Measured(about, columns, rows, {"": draw_learning(curves, tests, epochs)}, numbers=numbers)


def _test(subject: StudyRun) -> dict[str, int]:
    metrics = subject.record["metrics"]
    return count(metrics["correct"], metrics["total"])


def curve(metrics: Sequence[Mapping[str, Any]], epochs: float) -> Float[np.ndarray, "piece"]:
    """The mean accuracy of the batches in each piece of a training; where no line was written, between its
    neighbors."""
    lines = [line for line in metrics if line["kind"] == "train"]
    places = np.array([min(PIECES - 1, int(PIECES * line["epoch"] / epochs)) for line in lines])
    known = np.unique(places)
    accuracy = np.array([line["accuracy"] for line in lines])
    return np.interp(np.arange(PIECES), known, [accuracy[places == place].mean() for place in known])
