"""From a recipe to what it describes: its model and its loss."""

import dataclasses
from typing import Any

import torch

import torchcaps.models as models
from torchcaps.lab.recipes.base import AnyRecipe, Loss
from torchcaps.losses import LOSSES, BinaryCrossEntropyLoss, ClassificationLoss, MarginLoss, SpreadLoss
from torchcaps.models import Model
from torchcaps.models.base import mark_untrained


def build_model(recipe: AnyRecipe) -> Model:
    """A new model with the weights that the recipe's seed gives it; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = models.create(recipe.model_name, **model_fields(recipe))
    mark_untrained(model, recipe.loss.reconstruction)
    return model


def model_fields(recipe: AnyRecipe) -> dict[str, Any]:
    """The fields of the model's configuration, with the recipe's changes to the routing."""
    fields = {field.name: getattr(recipe.model, field.name) for field in dataclasses.fields(recipe.model)}
    if recipe.routing.num_iters is None:
        return fields
    if "num_iters" not in fields:
        raise ValueError(f"{recipe.model_name} has no routing, so --routing.num-iters has nothing to set; leave it out")
    return fields | {"num_iters": recipe.routing.num_iters}


def build_loss(recipe: AnyRecipe) -> ClassificationLoss:
    """The loss on the class scores, with its rule of decision."""
    return make_loss(recipe.loss)


def make_loss(loss: Loss) -> ClassificationLoss:
    """The loss that these fields describe."""
    if loss.kind == "margin":
        return MarginLoss(on=loss.on, decision=loss.decision)
    if loss.kind == "binary_cross_entropy":
        return BinaryCrossEntropyLoss(loss.decision)
    if loss.decision != "argmax":
        raise ValueError(f"the {loss.kind} loss decides on one class; got loss.decision={loss.decision!r}")
    return SpreadLoss(steps=loss.margin_steps) if loss.kind == "spread" else LOSSES[loss.kind]()
