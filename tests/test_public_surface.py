"""Everything public says what it takes and what it gives: Args, Shape, Returns, and an Example that is a doctest."""

import inspect
import re
from types import ModuleType

import pytest
from torch import nn

import torchcaps as tc
import torchcaps.sklearn as sklearn
from torchcaps import (
    backbones,
    capsules,
    data,
    decoders,
    export,
    heads,
    layers,
    losses,
    models,
    primary,
    routing,
    squashing,
    votes,
)

LIBRARY: dict[str, ModuleType] = {
    "torchcaps": tc,
    "capsules": capsules,
    "squashing": squashing,
    "backbones": backbones,
    "primary": primary,
    "votes": votes,
    "routing": routing,
    "layers": layers,
    "heads": heads,
    "decoders": decoders,
    "losses": losses,
    "models": models,
    "data": data,
    "sklearn": sklearn,
    "export": export,
}


def public_names(module: ModuleType) -> list[str]:
    """``__all__``, or whatever a module without one defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if name != "lab"]
    return [
        name
        for name, found in vars(module).items()
        if not name.startswith("_") and getattr(found, "__module__", None) == module.__name__
    ]


def public_objects() -> dict[str, object]:
    """Classes and functions by their address, each once."""
    found: dict[int, tuple[str, object]] = {}
    for place, module in LIBRARY.items():
        for name in public_names(module):
            thing = getattr(module, name)
            documented = inspect.isclass(thing) or inspect.isfunction(thing)
            if documented and thing.__module__.startswith("torchcaps."):
                found.setdefault(id(thing), (f"{place}.{name}", thing))
    return dict(found.values())


def public_methods() -> dict[str, object]:
    """The methods that public classes define themselves, but for those of PyTorch that need no words of ours."""
    return {
        f"{address}.{name}": method
        for address, thing in public_objects().items()
        if inspect.isclass(thing)
        for name, method in vars(thing).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in ("forward", "extra_repr")
    }


OBJECTS, METHODS = public_objects(), public_methods()


def inherited_words(thing: object) -> str:
    """The docstring of a thing, or of what it overrides."""
    return inspect.getdoc(thing) or ""


def section(words: str, title: str) -> str | None:
    """The text under a title, up to the next one."""
    found = re.search(rf"^{title}:\n((?:[ \t]+.*\n?|\n)*)", words, re.MULTILINE)
    return None if found is None else found.group(1)


def arguments(thing: object) -> list[str]:
    if inspect.isclass(thing) and issubclass(thing, nn.Module) and thing.__init__ is nn.Module.__init__:
        return []
    try:
        parameters = inspect.signature(thing).parameters  # pyright: ignore[reportArgumentType]
    except ValueError:
        return []
    return [name for name in parameters if name not in ("self", "cls")]


def is_exception(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


@pytest.mark.parametrize("address", [*OBJECTS, *METHODS])
def test_every_argument_is_documented(address: str) -> None:
    thing = (OBJECTS | METHODS)[address]
    words = inherited_words(thing)
    assert words, f"{address} has no docstring"
    if is_exception(thing) or getattr(thing, "_is_protocol", False):
        return
    written = section(words, "Args") or ""
    missing = [name for name in arguments(thing) if not re.search(rf"^\s+\*{{0,2}}{name}: \S", written, re.MULTILINE)]
    assert not missing, f"{address}: Args lacks {', '.join(missing)}"
    stale = set(re.findall(r"^    \*{0,2}(\w+): ", written, re.MULTILINE)) - set(arguments(thing))
    assert not stale, f"{address}: Args has {', '.join(sorted(stale))}, which it does not take"


def returns_something(thing: object) -> bool:
    return inspect.isfunction(thing) and inspect.signature(thing).return_annotation not in (None, "None")


@pytest.mark.parametrize("address", [address for address, thing in OBJECTS.items() if returns_something(thing)])
def test_every_function_says_what_it_returns_and_shows_it(address: str) -> None:
    words = inherited_words(OBJECTS[address])
    assert section(words, "Returns"), f"{address} does not say what it returns"
    assert ">>> " in (section(words, "Example") or ""), f"{address} has no example"


# What users subclass rather than make: their arguments are shown by the subclasses.
BASES = {layers.CapsuleLayer, primary.PrimaryCapsules, decoders.Decoder, losses.ClassificationLoss, models.Model}
MODULES = {
    address: thing for address, thing in OBJECTS.items() if inspect.isclass(thing) and issubclass(thing, nn.Module)
}


@pytest.mark.parametrize("address", [address for address, kind in MODULES.items() if kind not in BASES])
def test_every_module_has_an_example(address: str) -> None:
    assert ">>> " in (section(inherited_words(MODULES[address]), "Example") or ""), f"{address} has no example"


SHAPED = {name: kind for name, kind in MODULES.items() if kind not in BASES and not name.startswith("models.")}


@pytest.mark.parametrize("address", [name for name, kind in SHAPED.items() if not issubclass(kind, routing.Routing)])
def test_every_module_of_a_network_gives_its_shapes(address: str) -> None:
    words = inherited_words(SHAPED[address])
    assert section(words, "Shape"), f"{address} does not give its shapes"
    assert section(words, "Returns"), f"{address} does not say what it returns"
