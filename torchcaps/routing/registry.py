"""Routings by name: those of the package by short names, those of others by the import path of their class.

What a user names (in Python, on the command line) is imported. What a file names is not: ``find`` knows the classes
that this process has seen and imports nothing, so that the file of a stranger runs no code.
"""

import importlib
import re
from typing import Any

from torchcaps.routing.base import Routing, list_classes
from torchcaps.routing.dynamic import DynamicRouting
from torchcaps.routing.em import EMRouting
from torchcaps.routing.fixed_point import FixedPointRouting
from torchcaps.routing.fm import FMAgreement
from torchcaps.routing.heinsen import HeinsenRouting
from torchcaps.routing.inverted_attention import InvertedAttention
from torchcaps.routing.self_attention import SelfAttentionRouting
from torchcaps.routing.selfrouting import SelfRouting
from torchcaps.routing.uniform import UniformRouting
from torchcaps.routing.vb import VBRouting
from torchcaps.typed import show

MODULE = re.compile(r"\w{1,40}(\.\w{1,40}){0,5}", re.ASCII)
"""What a module is called; what is not is shown and not suggested."""
ROUTINGS: dict[str, type[Routing]] = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "heinsen": HeinsenRouting,
    "inverted_attention": InvertedAttention,
    "fm": FMAgreement,
    "self_attention": SelfAttentionRouting,
    "uniform": UniformRouting,
    "fixed_point": FixedPointRouting,
    "self_routing": SelfRouting,
    "vb": VBRouting,
}


def name_of(routing: Routing | type[Routing]) -> str:
    """The name that ``create`` takes: a short one, or ``package.module:Class``.

    Args:
        routing: a routing, or its class.

    Returns:
        The name.

    Example:
        >>> name_of(EMRouting)
        'em'
    """
    kind = routing if isinstance(routing, type) else type(routing)
    return next((name for name, known in ROUTINGS.items() if known is kind), _path(kind))


def find(name: str) -> type[Routing]:
    """The class of a name, without importing anything: of ``package.module:Class`` the module has to be imported
    already. For names that come from files.

    Args:
        name: a key of ``ROUTINGS`` or the import path of a class.

    Returns:
        The class.

    Example:
        >>> find("em").title
        'EM'
    """
    if name in ROUTINGS:
        return ROUTINGS[name]
    if ":" not in name:
        raise ValueError(f"no routing {show(name)}; {_list_known()}")
    if (kind := _seen(name)) is not None:
        return kind
    module = name.partition(":")[0]
    hint = f": `import {module}`, or `--import {module}` on the command line" if MODULE.fullmatch(module) else ""
    raise ValueError(
        f"no routing {show(name)} has been imported, and files import nothing; if you trust that module, import it "
        f"first{hint}"
    )


def resolve(routing: str | type[Routing]) -> type[Routing]:
    """The class that a user names; the module of ``package.module:Class`` is imported.

    Args:
        routing: a key of ``ROUTINGS``, the import path of a class, or a class, which passes through.

    Returns:
        The class.

    Example:
        >>> resolve("torchcaps.routing.em:EMRouting") is resolve("em")
        True
    """
    if isinstance(routing, type):
        return _check(routing, routing.__name__)
    if not isinstance(routing, str):
        raise ValueError(f"a routing is named, or given as its class; got {routing!r}")
    path, colon, name = routing.partition(":")
    if not colon:
        return find(routing)
    if (known := _seen(routing)) is not None:
        return known
    try:
        found = importlib.import_module(path)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import the routing {routing!r}: {error}; expected package.module:Class") from error
    return _check(found, routing)


def create(routing: str | type[Routing] | Routing) -> Routing:
    """A routing with its paper's settings; an instance passes through.

    Args:
        routing: a key of ``ROUTINGS``, the import path of a class (``"my_package.my_module:MyRouting"``), a class, or
            an instance.

    Returns:
        A routing.

    Example:
        >>> create("dynamic").num_iters
        3
    """
    return routing if isinstance(routing, Routing) else resolve(routing)()


def _check(found: Any, name: str) -> type[Routing]:
    if not isinstance(found, type) or not issubclass(found, Routing):
        raise ValueError(f"{name!r} is {found!r}; expected a subclass of torchcaps.routing.Routing")
    return found


def _path(kind: type[Routing]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _seen(path: str) -> type[Routing] | None:
    """The class of this path, if its module is imported; the newest, where a module was reloaded."""
    return next((kind for kind in reversed(list_classes()) if _path(kind) == path), None)


def _list_known() -> str:
    return f"there are {', '.join(map(repr, ROUTINGS))}, or 'package.module:Class' for one of your own"
