"""Every model's size beside its paper's figure."""

from dataclasses import dataclass
from pathlib import Path

from torchcaps.files import read_object
from torchcaps.models.counting import count_macs, count_parameters
from torchcaps.models.registry import MODELS, create, list_models

SIZES = Path(__file__).parent / "sizes.json"
"""Parameters and multiply-adds of all models, which take seconds to count: ``scripts/write_model_sizes.py``."""
UNITS = {"K": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Row:
    """A model's line of the listing.

    Args:
        name: its name.
        about: what it is.
        parameters: its learned numbers.
        paper: its paper's figure.
        macs: multiply-adds of one example.
        difference: why the figures differ; empty where the paper's figure, or its rounding, is ours.
    """

    name: str
    about: str
    parameters: int
    paper: str
    macs: int
    difference: str  # empty where the paper's figure, or its rounding, is ours


def agrees(parameters: int, paper: str) -> bool:
    """Whether a count rounds to the figure that a paper prints; no figure agrees with everything.

    >>> agrees(8_215_568, "8.2 M"), agrees(317_194, "310 K"), agrees(903_856, "less than 1 M")
    (True, False, True)
    """
    if not paper:
        return True
    *less, figure, unit = paper.split()
    if less:
        return parameters < float(figure) * UNITS[unit]
    decimals = len(figure.partition(".")[2])
    return round(parameters / UNITS[unit], decimals) == float(figure)


def row(name: str) -> Row:
    """One model's line; the model is made for it."""
    model = create(name)
    return describe(name, count_parameters(model), count_macs(model, MODELS[name].config.input_shape))


def describe(name: str, parameters: int, macs: int) -> Row:
    """The line of a model of this size."""
    entry = MODELS[name]
    difference = "" if agrees(parameters, entry.paper) else entry.why
    return Row(name, entry.about, parameters, entry.paper, macs, difference)


def table(contains: str = "") -> list[Row]:
    """The lines of all models, or of some; sizes are those of ``sizes.json``.

    Args:
        contains: a word that the name contains.

    Returns:
        A line for each model.

    Example:
        >>> table("sabour2017_mnist")[0].parameters
        8215568
    """
    sizes = read_object(SIZES)
    return [describe(name, **sizes[name]) for name in list_models(contains)]
