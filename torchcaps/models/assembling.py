"""A model from a configuration that is not trusted: typed fields, sizes within limits, built without memory first.

The file of a stranger may claim any configuration. It is built on the meta device, where tensors have shapes and no
bytes; only where its shapes are those of the weights at hand do these weights become the model.
"""

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from torchcaps.models.base import Model
from torchcaps.models.registry import create, entry
from torchcaps.routing import find as find_routing
from torchcaps.typed import check_numbers, read_fields

LARGEST = 1 << 20
LARGEST_OF = {"image_size": 1 << 13, "num_iters": 1000, "blocks": 1000, "stem_depth": 1000}
SHOWN = 4  # names of tensors in a message
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


OLD_FIELDS = {"primary_types": "primary_caps", "types": "caps", "parts": "caps"}  # in older files


def upgrade_config(written: Any) -> Any:
    """A configuration as a file has it, with its fields under their present names.

    >>> upgrade_config({"classes": 10, "primary_types": 8})
    {'classes': 10, 'primary_caps': 8}
    """
    if not isinstance(written, Mapping):
        return written
    return {OLD_FIELDS.get(name, name): value for name, value in written.items()}


def read_config(name: str, written: Any, source: str) -> dict[str, Any]:
    """The fields of a model's configuration, each of its type and within limits; some may be left out."""
    try:
        known = type(entry(name).config)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    fields = read_fields(known, written, f"{source}: the configuration of {name}")
    check_config(fields, source)
    return fields


def check_config(fields: Mapping[str, Any], source: str) -> None:
    """Check that all sizes of a configuration are such as models have; a ``ValueError`` otherwise.

    Args:
        fields: names and values of the configuration.
        source: where it comes from, for messages.
    """
    if isinstance(fields.get("routing"), str):
        try:
            find_routing(fields["routing"])
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
    check_numbers(fields, source, largest=LARGEST, largest_of=LARGEST_OF)


def assemble(name: str, fields: Mapping[str, Any], state: Mapping[str, Tensor], source: str, device: str) -> Model:
    """The model of this configuration with these weights; a ``ValueError`` where the two do not belong together.

    Args:
        name: name of the model.
        fields: fields of its configuration.
        state: its weights.
        source: where they come from, for messages.
        device: where the model shall be.

    Returns:
        The model.

    Example:
        >>> small = {"stem_channels": 2, "primary_caps": 1, "decoder": False}
        >>> model = create("sabour2017_mnist", **small)
        >>> assemble("sabour2017_mnist", small, model.state_dict(), "a file", "cpu").classes
        10
    """
    try:
        with torch.device("meta"), _at_most(2 * len(state) + 1000), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tensors without elements, say: the shapes will tell
            model = create(name, **fields)
    # Whatever an unlikely configuration makes a constructor do: the file is what is wrong, not the program.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{source}: no {name} can be built from its configuration ({reason})") from error
    fill(model, state, source, device)
    return model


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    """Stop building a model of far more parameters than there are weights: modules take memory and time too."""
    made, thread = 0, threading.get_ident()

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal made
        made += threading.get_ident() == thread
        if made > parameters:
            raise ValueError(f"more than {parameters:,} tensors of weights, far more than there are")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def fill(model: nn.Module, state: Mapping[str, Tensor], source: str, device: str | None = None) -> None:
    """Put exactly these weights into a model; those of a model on the meta device become its own."""
    own = model.state_dict()
    _check_fit(model, own, state, source)
    # A copy in torch's own, aligned memory: kernels may round differently elsewhere.
    fitting = {name: tensor.to(device=device, dtype=own[name].dtype, copy=True) for name, tensor in state.items()}
    damaged = [name for name, tensor in fitting.items() if not tensor.isfinite().all()]
    if damaged:
        raise ValueError(
            f"{source}: {_count(damaged, 'tensors')} with numbers that are not finite; the training that gave them "
            "diverged, or the file is damaged"
        )
    model.load_state_dict(fitting, assign=any(tensor.is_meta for tensor in own.values()))


def _check_fit(model: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor], source: str) -> None:
    both = [name for name in own if name in state]
    problems = {
        "tensors that the model has are missing": [name for name in own if name not in state],
        "tensors that the model does not have": [name for name in state if name not in own],
        "tensors of another shape": [
            f"{name} {tuple(state[name].shape)} in place of {tuple(own[name].shape)}"
            for name in both
            if state[name].shape != own[name].shape
        ],
        "tensors of another type of number": [
            f"{name} {_type(state[name])} in place of {_type(own[name])}"
            for name in both
            if not _same_kind(state[name].dtype, own[name].dtype)
        ],
    }
    found = [_count(names, what) for what, names in problems.items() if names]
    if found:
        raise ValueError(f"{source} does not fit this {type(model).__name__}; {'; '.join(found)}")


def _same_kind(one: torch.dtype, other: torch.dtype) -> bool:
    """Floats of any precision stand for each other: half-precision files are read as the model's type."""
    return one == other or (one in FLOATS and other in FLOATS)


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}: {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
