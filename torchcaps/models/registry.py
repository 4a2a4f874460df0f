"""All models by name: what there is, how to make one, and their sizes beside those of the papers."""

import dataclasses
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.files import read_object
from torchcaps.models import (
    attention_pooling,
    baselines,
    comparison,
    efficient2021,
    heinsen2019,
    heinsen2022,
    hinton2018,
    sabour2017,
    sr2019,
    tsai2020,
    vb2020,
    zhao2020,
)
from torchcaps.models.base import Model, ModelEntry, Origin
from torchcaps.models.counting import count_macs, count_parameters
from torchcaps.routing import Routing, name_of
from torchcaps.typed import show, suggest

MODELS: dict[str, ModelEntry] = {
    **sabour2017.MODELS,
    **hinton2018.MODELS,
    **heinsen2019.MODELS,
    **heinsen2022.MODELS,
    **tsai2020.MODELS,
    **zhao2020.MODELS,
    **efficient2021.MODELS,
    **sr2019.MODELS,
    **vb2020.MODELS,
    **comparison.MODELS,
    **baselines.MODELS,
    **attention_pooling.MODELS,
}


def list_models(contains: str = "", *, pretrained: bool = False) -> list[str]:
    """The names of all models, or of some.

    Args:
        contains: a word that the name contains.
        pretrained: those of the trained models that come with the package.

    Returns:
        Names that ``create`` takes.

    Example:
        >>> list_models("heinsen2019")
        ['heinsen2019_smallnorb', 'heinsen2019_sst5', 'heinsen2019_sst2']
    """
    names = _import_pretrained().list_pretrained() if pretrained else list(MODELS)
    return [name for name in names if contains in name]


def entry(name: str) -> ModelEntry:
    """What the registry says about a model.

    Args:
        name: name of the model.

    Returns:
        Its entry.

    Example:
        >>> entry("sabour2017_mnist").paper
        '8.2 M'
    """
    if name not in MODELS:
        raise ValueError(f"no model {show(name)}; {suggest(name, list(MODELS), 'tc.models.list() names all')}")
    return MODELS[name]


def configure(name: str, **overrides: Any) -> Any:
    """The configuration of a model with some fields replaced.

    Args:
        name: name of the model.
        **overrides: fields of its configuration.

    Returns:
        The configuration, a frozen dataclass.

    Example:
        >>> configure("sabour2017_mnist", image_size=32).input_shape
        (1, 32, 32)
    """
    config = entry(name).config
    fields = [field.name for field in dataclasses.fields(config)]
    for given in overrides:
        if given not in fields:
            raise ValueError(f"{name} has no {given!r}; {suggest(given, fields, 'it has ' + ', '.join(fields))}")
    if "routing" in overrides:  # written into files, so it is a name
        overrides["routing"] = _routing_name(overrides["routing"])
    return dataclasses.replace(config, **overrides)


def create(name: str, *, pretrained: bool = False, **overrides: Any) -> Model:
    """Make a model by its name, with its paper's configuration except for the overrides.

    Args:
        name: name of the model (``tc.models.list()``); or of a trained one (``tc.models.list(pretrained=True)``).
        pretrained: take the weights that come with the package. They are for one configuration each; another one is an
            error. ``model.record`` says what they were trained on, and how well they do.
        **overrides: fields of its configuration.

    Returns:
        A new model; a trained one is ready for evaluation.

    Example:
        >>> create("sabour2017_mnist", decoder=False, routing="em").classes
        10
        >>> create("quickstart-small", pretrained=True).class_names[:3]
        ('0', '1', '2')
    """
    if pretrained:
        return _import_pretrained().load_pretrained(name, overrides)
    config = configure(name, **overrides)
    try:
        model = entry(name).build(config)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    model.origin = Origin(name, config)
    return model


def _import_pretrained() -> Any:
    """What reads model files, and so needs this module first."""
    return importlib.import_module("torchcaps.models.pretrained")


def _routing_name(routing: Any) -> Any:
    if isinstance(routing, Routing):
        raise ValueError(f"a model makes a routing for each of its layers; give {type(routing).__name__} in its place")
    return name_of(routing) if isinstance(routing, type) and issubclass(routing, Routing) else routing


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
