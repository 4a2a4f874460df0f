"""What figures are drawn from: plain records of numbers, which can be written to a file and read again."""

import dataclasses
import io
import json
import types
import typing
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from torchcaps.files import write_bytes

FIELDS = "fields"  # the entry of an NPZ file that holds, as JSON, everything that is no array

Loaded = TypeVar("Loaded", bound="FigureRecord")


@dataclass(frozen=True)
class FigureRecord:
    """Numbers behind a figure: arrays, tuples of arrays (one for each layer, say), and plain values.

    ``save`` writes an NPZ file: arrays under their names, those of a tuple as ``name.0``, ``name.1``, and the plain
    values as JSON under ``fields``. Nothing is pickled.
    """

    def save(self, path: str | Path) -> None:
        arrays: dict[str, np.ndarray] = {}
        plain: dict[str, Any] = {"record": type(self).__name__}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                arrays[field.name] = value
            elif _holds_arrays(value):
                arrays |= {f"{field.name}.{number}": array for number, array in enumerate(value)}
            else:
                plain[field.name] = value
        written = io.BytesIO()
        np.savez_compressed(written, **arrays, **{FIELDS: np.array(json.dumps(plain))})  # pyright: ignore[reportArgumentType]
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(Path(path), written.getvalue())

    @classmethod
    def load(cls: type[Loaded], path: str | Path) -> Loaded:
        """The record of a file that ``save`` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            plain = json.loads(str(arrays.pop(FIELDS)))
        except (KeyError, ValueError, RecursionError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} holds no record of numbers; expected an NPZ file that save() wrote") from error
        if not isinstance(plain, dict) or plain.pop("record", None) != cls.__name__:
            raise ValueError(f"{path} holds no {cls.__name__}; load it by the class that wrote it")
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            if field.name in arrays:
                values[field.name] = arrays[field.name]
            elif field.name in plain:
                values[field.name] = _as_hinted(plain[field.name], hints[field.name])
            else:
                numbered = [name for name in arrays if name.rpartition(".")[0] == field.name]
                if not numbered and field.default is not dataclasses.MISSING:  # a field that older files lack
                    continue
                values[field.name] = tuple(arrays[f"{field.name}.{number}"] for number in range(len(numbered)))
        return cls(**values)


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers, on the CPU and in a type that NumPy knows."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor).numpy()


def class_names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names of the classes, or their numbers where there are no names."""
    if classes is None:
        return tuple(str(number) for number in range(count))
    if len(classes) != count:
        raise ValueError(f"{len(classes)} class names for a model of {count} classes; give one for each")
    return tuple(classes)


def _holds_arrays(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(each, np.ndarray) for each in value)


def _as_hinted(value: Any, hint: Any) -> Any:
    """JSON knows lists only: tuples become tuples again."""
    hints = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    wants_tuple = any(typing.get_origin(each) is tuple for each in hints)
    if isinstance(value, list) and wants_tuple:
        inner = next(typing.get_args(each)[0] for each in hints if typing.get_origin(each) is tuple)
        return tuple(_as_hinted(each, inner) for each in value)
    return value
