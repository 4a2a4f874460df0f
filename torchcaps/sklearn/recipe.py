"""The recipe that an estimator's parameters describe."""

import dataclasses
import math
from typing import Any

import torchcaps.models as models
from torchcaps.lab.recipes import AnyRecipe, Claim, Data, Loss, Optimizer, Recipe, Schedule, Transforms
from torchcaps.lab.recipes.fitting import fit_to_images
from torchcaps.lab.recipes.serialization import check_preprocessing
from torchcaps.losses import LOSSES
from torchcaps.routing import resolve
from torchcaps.typed import read_fields


def make_recipe(estimator: Any, seed: int, val_size: int, passes: int | None = None) -> AnyRecipe:
    """The recipe for the images and classes that the estimator was given. With ``passes`` it is a piece of a training:
    so many epochs, at a constant learning rate."""
    check_numbers(estimator)
    fields = read_fields(Transforms, estimator.transforms or {}, "transforms")
    check_preprocessing(fields, "transforms")
    config = _configure(estimator)
    recipe = Recipe(
        name="sklearn",
        claim=Claim("your own data", "accuracy", None),
        model_name=estimator.model,
        model=config,
        data=Data("X", val_size=val_size),
        transforms=Transforms(**fields),
        loss=Loss(_choose_loss(estimator.loss, config), reconstruction=float(estimator.reconstruction)),  # pyright: ignore[reportArgumentType]
        optimizer=Optimizer("adam", lr=float(estimator.learning_rate)),
        schedule=Schedule("constant" if passes else "warmup_cosine", warmup=0.1, low=1e-5),
        epochs=float(passes or estimator.epochs),
        batch_size=int(estimator.batch_size),
        patience=int(estimator.n_iter_no_change) if val_size else None,
        seed=seed,
    )
    height, width, channels = estimator.image_shape_
    return fit_to_images(recipe, channels, (height, width), len(estimator.classes_))


def check_numbers(estimator: Any) -> None:
    """That what is a number is one, and large enough; the message names the parameter."""
    for name, whole in (("epochs", False), ("batch_size", True), ("learning_rate", False), ("n_iter_no_change", True)):
        value = getattr(estimator, name)
        kind = "whole number" if whole else "number"
        try:
            fine = math.isfinite(value) and value > 0 and (not whole or int(value) == value)
        except TypeError:
            fine = False
        if not fine:
            raise ValueError(f"{name}={value!r}; expected a {kind} above 0")


def _configure(estimator: Any) -> Any:
    """The configuration of the model, its options held to the types of its fields."""
    default = models.entry(estimator.model).config
    options = read_fields(type(default), dict(estimator.model_options or {}), "model_options")
    names = {field.name for field in dataclasses.fields(default)}
    for name in ("routing", "num_iters"):
        value = getattr(estimator, name)
        if value is not None and name not in names:
            raise ValueError(f"{name}={value!r}, but the model {estimator.model!r} has no routing; leave it out")
        if value is not None:
            options[name] = value
    if "decoder" in names:
        options.setdefault("decoder", bool(estimator.reconstruction))
    return models.configure(estimator.model, **options)


def _choose_loss(given: str | None, config: Any) -> str:
    """The loss of that name; else cross-entropy where it suits the routing, as its probabilities need no rescaling."""
    if given is not None:
        if given not in LOSSES:
            raise ValueError(f"loss={given!r}; expected {', '.join(map(repr, LOSSES))}, or None")
        return given
    name = getattr(config, "routing", None)
    suited = ("cross_entropy",) if name is None else resolve(name).suited_losses
    return "cross_entropy" if "cross_entropy" in suited else suited[0]
