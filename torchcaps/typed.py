"""From JSON to dataclasses: only what has exactly the declared types is read, and an error names the place."""

import dataclasses
import difflib
import math
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

SHOWN = 80  # letters of a wrong value in a message
LONGEST = 100  # numbers of one field


def read_dataclass(
    kind: Any,
    written: Any,
    place: str,
    known: Mapping[str, Any] | None = None,
    optional: Collection[str] = (),
) -> Any:
    """A dataclass from a JSON object with all its fields; ``known`` are types of fields that have no declared one, and
    ``optional`` names fields that may be left out.

    >>> Point = dataclasses.make_dataclass("Point", [("x", int), ("y", int)])
    >>> read_dataclass(Point, {"x": 1, "y": "2"}, "point")
    Traceback (most recent call last):
        ...
    ValueError: point.y is '2'; expected int
    """
    fields = read_fields(kind, written, place, known)
    missing = [field.name for field in dataclasses.fields(kind) if field.name not in {*fields, *optional}]
    if missing:
        raise ValueError(f"{place} lacks {', '.join(map(repr, missing))}; all fields are written down")
    return kind(**fields)


def read_fields(kind: Any, written: Any, place: str, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Those fields of a dataclass that a JSON object has, each of its type."""
    if not isinstance(written, Mapping):
        raise ValueError(f"{place} is {show(written)}; expected an object with the fields of {kind.__name__}")
    hints = get_type_hints(kind) | dict(known or {})
    names = [field.name for field in dataclasses.fields(kind)]
    for given in written:
        if given not in names:
            raise ValueError(f"{place} has a field {show(given)} that is not known; {suggest(str(given), names)}")
    return {name: read_value(hints[name], written[name], f"{place}.{name}") for name in names if name in written}


def read_value(kind: Any, written: Any, place: str) -> Any:
    """A value of this type; types are those that recipes and configurations of models have."""
    if dataclasses.is_dataclass(kind):
        return read_dataclass(kind, written, place)
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_one_of(inside, written, place)
    if origin is Literal and any(written == choice and type(written) is type(choice) for choice in inside):
        return written
    if origin is tuple and isinstance(written, list | tuple):
        kinds = inside[:1] * len(written) if inside[1:] == (...,) else inside
        if len(kinds) == len(written):
            return tuple(read_value(one, item, place) for one, item in zip(kinds, written, strict=True))
    if kind is float and (number := _as_float(written)) is not None:
        return number
    if kind is not float and ((kind is type(None) and written is None) or _is_exactly(written, kind)):
        return written
    raise ValueError(f"{place} is {show(written)}; expected {_describe(kind)}")


def check_numbers(
    fields: Mapping[str, Any], place: str, *, largest: int, largest_of: Mapping[str, int] | None = None
) -> None:
    """That no field has too many numbers or too large ones; ``largest_of`` has limits of some fields by name.

    >>> check_numbers({"width": 64, "sizes": (3, 10**9)}, "model", largest=1000)
    Traceback (most recent call last):
        ...
    ValueError: model: sizes is (3, 1000000000); expected numbers up to 1,000
    """
    for name, value in fields.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) > LONGEST:
            raise ValueError(f"{place}: {name} has {len(numbers)} numbers; expected at most {LONGEST}")
        most = (largest_of or {}).get(name, largest)
        for number in numbers:
            if isinstance(number, int | float) and not -most <= number <= most:
                raise ValueError(f"{place}: {name} is {show(value)}; expected numbers up to {most:,}")


def _as_float(written: Any) -> float | None:
    """A finite number as a float; whole numbers too, as JSON writes 1.0 as 1 in some languages."""
    if not isinstance(written, int | float) or isinstance(written, bool):
        return None
    try:
        return float(written) if math.isfinite(written) else None
    except OverflowError:
        return None


def _is_exactly(written: Any, kind: Any) -> bool:
    return isinstance(kind, type) and type(written) is kind


def _read_one_of(kinds: tuple[Any, ...], written: Any, place: str) -> Any:
    for kind in kinds:
        try:
            return read_value(kind, written, place)
        except ValueError:
            continue
    raise ValueError(f"{place} is {show(written)}; expected {' or '.join(map(_describe, kinds))}")


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if kind is type(None):
        return "null"
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def show(value: Any) -> str:
    """A value for a message, cut where it is long.

    >>> show("a" * 200)[-3:], show([1])
    ("a…'", '[1]')
    """
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN else value[: SHOWN - 1] + "…")
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def suggest(given: str, known: Sequence[str], otherwise: str = "") -> str:
    """What may have been meant by a name that is not known; ``otherwise``, or all that is known, if nothing is like it.

    >>> suggest("colour", ["color", "size"]), suggest("x", ["color", "size"])
    ("did you mean 'color'?", 'there are color, size')
    """
    close = difflib.get_close_matches(given[:SHOWN], known, n=3, cutoff=0.5)
    if not close:
        return otherwise or f"there are {', '.join(known)}"
    return f"did you mean {' or '.join(map(repr, close))}?" + (f" ({otherwise})" if otherwise else "")
