"""Whether a route reaches tensors in another way than through its arguments: their gradients would be lost.

A route runs again in the backward pass, block by block, and gradients come out at its arguments alone.
"""

import dis
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn


def refuse_captured(route: Callable[..., Any]) -> None:
    """Raise a ``ValueError`` where a route holds on to a tensor that wants a gradient: in its closure, as the object
    whose method it is, as a fixed argument, or as a global variable."""
    if not torch.is_grad_enabled() or _reaches_nothing(route):
        return
    for name, value in _reached(route):
        if isinstance(value, _HOLDERS) and (held := _wants_gradient(value)):
            raise ValueError(
                f"the route {getattr(route, '__name__', 'given')!r} captures {name!r}, {held} that would get no "
                f"gradient; take it as an argument of the route and pass it to run(route, shared=[{name}]) or "
                f"run(route, per_example=[{name}]), or capture {name}.detach()"
            )


_HOLDERS = (Tensor, nn.Module, list, tuple, dict)


def _reaches_nothing(route: Callable[..., Any]) -> bool:
    """Whether a route is a plain function that reaches nothing but its arguments and what holds no tensors. Nearly all
    are, and small layers feel the question."""
    if type(route) is not FunctionType or route.__dict__:
        return False
    for cell in route.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if _may_hold(type(value)):
            return False
    known = route.__globals__
    for name in _globals_of(route.__code__):  # no generator  # noqa: SIM110
        if _may_hold(type(known.get(name))):
            return False
    return True


@lru_cache(maxsize=256)
def _may_hold(kind: type) -> bool:
    return issubclass(kind, _HOLDERS)


def _reached(route: Any) -> Iterator[tuple[str, Any]]:
    while True:
        if isinstance(route, partial):
            yield from ((f"argument {number}", value) for number, value in enumerate(route.args))
            yield from route.keywords.items()
            route = route.func
        elif hasattr(route, "__wrapped__"):
            route = route.__wrapped__
        elif hasattr(route, "__func__"):
            yield "self", route.__self__
            route = route.__func__
        else:
            break
    code = getattr(route, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, route.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _globals_of(code):
        if name in route.__globals__:
            yield name, route.__globals__[name]


@lru_cache(maxsize=256)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """The global names that a function reads; the bytecode is looked through once."""
    return tuple({step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"})


def _wants_gradient(value: Any) -> str:
    """What about a captured value wants a gradient, in words; empty where nothing does."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}" if value.requires_grad else ""
    if isinstance(value, nn.Module):
        learned = next((name for name, parameter in value.named_parameters() if parameter.requires_grad), None)
        return "" if learned is None else f"a {type(value).__name__} with the parameter {learned!r}"
    if isinstance(value, (list, tuple)):
        return next((found for found in map(_wants_gradient, value) if found), "")
    if isinstance(value, dict):
        return next((found for found in map(_wants_gradient, value.values()) if found), "")
    return ""
