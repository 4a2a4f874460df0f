"""Estimators in files: a model file of torchcaps, with parameters and labels in its header."""

import inspect
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import torchcaps.models as models
from torchcaps.models.saving import build, read
from torchcaps.typed import show

KEY = "sklearn"
KINDS = "biufU"  # of labels: truth values, numbers, strings


def save_estimator(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator."""
    classes = np.asarray(estimator.classes_)
    if classes.dtype.kind == "O" and all(isinstance(label, str) for label in classes):
        classes = classes.astype(str)
    if classes.dtype.kind not in KINDS:
        raise ValueError(f"classes of type {classes.dtype} cannot be written down; give numbers or strings as labels")
    described = {
        "estimator": type(estimator).__name__,
        "parameters": _parameters(estimator),
        "classes": classes.tolist(),
        "dtype": str(classes.dtype),
        "image_shape": list(estimator.image_shape_),
        "pixel_range": list(estimator.pixel_range_),
        "steps": estimator.n_steps_,
    }
    models.save(estimator.model_, path, extra={KEY: json.dumps(described, sort_keys=True)})


def _parameters(estimator: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        value = None if name == "random_state" and not isinstance(value, int | np.integer) else value
        try:
            found[name] = json.loads(json.dumps(value, default=_plain))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}={show(value)} cannot be written down: {error}") from error
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it is a {type(value).__name__}; give numbers, strings and lists")


def load_estimator(kind: Any, path: str | Path) -> Any:
    """Read a fitted estimator of this class; whatever in the file does not fit is an error that names it."""
    found = read(path)
    if KEY not in found.extra:
        raise ValueError(f"{path} is the file of a model, not of an estimator; {kind.__name__}.save writes those")
    try:
        described = json.loads(found.extra[KEY])
        if described["estimator"] != kind.__name__:
            raise ValueError(f"it holds a {show(described['estimator'])}; load it with that class")
        estimator = kind(**_check_parameters(described["parameters"], kind))
        estimator.classes_ = _read_classes(described["classes"], described["dtype"])
        estimator.image_shape_ = _read_shape(described["image_shape"])
        estimator.pixel_range_ = _read_range(described["pixel_range"])
        steps = described["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps is {show(steps)}; expected a whole number")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its header describes no {kind.__name__}: {error}") from error
    estimator.n_features_in_ = math.prod(estimator.image_shape_)
    estimator.model_, estimator.history_, estimator.n_steps_ = build(found, path).eval(), [], steps
    trained, (height, width, channels) = estimator.model_.trained, estimator.image_shape_
    names = tuple(map(str, estimator.classes_.tolist()))
    if trained is None or trained.class_names != names or trained.image_shape != (channels, height, width):
        raise ValueError(f"{path}: its estimator has other classes or images than its model")
    return estimator


def _check_parameters(found: Any, kind: Any) -> dict[str, Any]:
    known = inspect.signature(kind.__init__).parameters
    if not isinstance(found, dict) or not set(found) < set(known):
        raise ValueError(f"parameters is {show(found)}; expected those of {kind.__name__}")
    tuples = ("image_shape", "pixel_range")
    return {name: tuple(value) if name in tuples and value is not None else value for name, value in found.items()}


def _read_classes(values: Any, dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype) if isinstance(dtype, str) else np.dtype(object)
    if kind.kind not in KINDS or not isinstance(values, list) or len(values) < 2:
        raise ValueError(f"classes are {show(values)} of type {show(dtype)}; expected numbers or strings")
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise ValueError("classes holds something that is no number and no string")
    classes = np.asarray(values, dtype=None if kind.kind == "U" else kind)  # a length of strings is not taken on trust
    if classes.ndim != 1 or classes.dtype.kind != kind.kind or len(np.unique(classes)) != len(classes):
        raise ValueError(f"classes are {show(values)}; expected labels of type {show(dtype)}, each once")
    return classes


def _read_shape(found: Any) -> tuple[int, int, int]:
    if not isinstance(found, list) or len(found) != 3 or not all(type(size) is int and size > 0 for size in found):
        raise ValueError(f"image_shape is {show(found)}; expected rows, columns and channels")
    return found[0], found[1], found[2]


def _read_range(found: Any) -> tuple[float, float]:
    if not isinstance(found, list) or len(found) != 2 or not all(type(end) is float for end in found):
        raise ValueError(f"pixel_range is {show(found)}; expected two numbers")
    if not found[0] < found[1] or not math.isfinite(found[1] - found[0]):
        raise ValueError(f"pixel_range is {show(found)}; expected black, then white")
    return found[0], found[1]
