"""The papers' experiments, by name: ``get("sabour2017/mnist", "laptop")`` is all that decides a run's outcome.

``list()`` names them, ``configure`` changes one as the command line does, ``to_json`` and ``from_json`` write and read
one, and ``build_model`` and ``build_loss`` make what it describes.
"""

from torchcaps.lab.recipes.base import (
    AnyRecipe,
    Claim,
    Data,
    Loss,
    Optimizer,
    Recipe,
    RoutingOptions,
    Scale,
    Schedule,
    Text,
    Transforms,
)
from torchcaps.lab.recipes.building import build_loss, build_model, make_loss, model_fields
from torchcaps.lab.recipes.changes import Difference, change, differences
from torchcaps.lab.recipes.fitting import fit_to_data
from torchcaps.lab.recipes.overriding import configure
from torchcaps.lab.recipes.registry import RECIPES, SCALES, get
from torchcaps.lab.recipes.registry import list_recipes as list  # the public name; nothing inside is called so
from torchcaps.lab.recipes.serialization import from_json, loss_of, preprocessing_of, to_json, training_of

__all__ = [
    "RECIPES",
    "SCALES",
    "AnyRecipe",
    "Claim",
    "Data",
    "Difference",
    "Loss",
    "Optimizer",
    "Recipe",
    "RoutingOptions",
    "Scale",
    "Schedule",
    "Text",
    "Transforms",
    "build_loss",
    "build_model",
    "change",
    "configure",
    "differences",
    "fit_to_data",
    "from_json",
    "get",
    "list",
    "loss_of",
    "make_loss",
    "model_fields",
    "preprocessing_of",
    "to_json",
    "training_of",
]
