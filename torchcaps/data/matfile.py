"""MATLAB's level 5 .mat files: numeric arrays and structures of them, read as a stream.

Why not scipy's reader: it allocates what a header claims before looking at the file, and builds objects that nobody
here needs. The tests hold this one to scipy's writer.
"""

import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from torchcaps.data.base import DataError
from torchcaps.data.files import CHUNK, Readable, opened, read_exactly

Value = np.ndarray | dict[str, "Value"]

MATRIX, COMPRESSED = 14, 15
STRUCT = 2
# How numbers are stored (a MATLAB "data type") and what they are meant to be (its "class").
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MEANT = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


class _Inflated:
    """The bytes of a zlib stream that is ``size`` bytes long in the file, inflated piece by piece."""

    def __init__(self, stream: Readable, size: int, limit: int, path: Path) -> None:
        self._stream, self._left, self._room, self._path = stream, size, limit, path
        self._decoder = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        while not self._decoder.eof:
            batch = self._decoder.unconsumed_tail
            if not batch:
                batch = self._stream.read(min(self._left, CHUNK))
                self._left -= len(batch)
                if not batch:
                    break
            if data := self._decoder.decompress(batch, size):
                self._room -= len(data)
                if self._room < 0:
                    raise DataError(f"{self._path}: unpacks to more than this dataset can have; do not trust it")
                return data
        return b""

    def skip_rest(self) -> None:
        while self._left and (data := self._stream.read(min(self._left, CHUNK))):
            self._left -= len(data)


class _Reader:
    def __init__(self, path: Path, order: str, wanted: Callable[[str], bool]) -> None:
        self.path, self.order, self.wanted = path, order, wanted

    def error(self, what: str) -> DataError:
        return DataError(f"{self.path}: {what}; it is not the published file: fetch it again")

    def tag(self, stream: Readable) -> tuple[int, int, bytes | None]:
        """Kind and size of the next element; its bytes too where they are packed into the tag."""
        raw = bytes(read_exactly(stream, 8, self.path, "an element's tag"))
        kind, size = struct.unpack(self.order + "II", raw)
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise self.error(f"a small element claims {size} bytes")
            return kind, size, raw[4 : 4 + size]
        return kind, size, None

    def element(self, stream: Readable, limit: int, what: str) -> tuple[int, bytearray]:
        kind, size, data = self.tag(stream)
        if size > limit:
            raise self.error(f"{what} claims {size:,} bytes, more than the {limit:,} that it can have")
        if data is not None:
            return kind, bytearray(data)
        content = read_exactly(stream, size, self.path, what)
        self.padding(stream, size)
        return kind, content

    def padding(self, stream: Readable, size: int) -> None:
        if size % 8:
            read_exactly(stream, 8 - size % 8, self.path, "padding")

    def integers(self, stream: Readable, what: str) -> tuple[int, ...]:
        kind, data = self.element(stream, 32, what)
        if kind not in (5, 6) or len(data) % 4:
            raise self.error(f"{what} is of kind {kind}, not a few whole numbers")
        return struct.unpack(f"{self.order}{len(data) // 4}i", data)

    def matrix(self, stream: Readable, limit: int, depth: int = 0) -> tuple[str, Value | None]:
        """The next array or structure with its name; None for one that nobody wants."""
        flags = self.integers(stream, "array flags")
        shape = self.integers(stream, "array dimensions")
        _, text = self.element(stream, 64, "an array's name")
        name = text.decode("latin-1")
        if len(flags) != 2 or len(shape) < 2 or min(shape) < 0:
            raise self.error(f"an array of dimensions {shape}")
        kind = flags[0] & 0xFF
        if kind == STRUCT and depth == 0 and math.prod(shape) == 1:
            return name, self.structure(stream, limit)
        if kind not in MEANT or flags[0] & 0x0800:
            raise self.error(f"{name or 'a field'} is of MATLAB class {kind}, not a real array of numbers")
        return name, self.numbers(stream, shape, np.dtype(MEANT[kind]), limit)

    def numbers(self, stream: Readable, shape: tuple[int, ...], meant: np.dtype, limit: int) -> np.ndarray:
        count = math.prod(shape)
        stored, data = self.element(stream, limit, "an array's numbers")
        if stored not in STORED:
            raise self.error(f"numbers stored as MATLAB data type {stored}")
        dtype = np.dtype(self.order + STORED[stored])
        if len(data) != count * dtype.itemsize:
            raise self.error(f"{len(data):,} bytes for an array of {'×'.join(map(str, shape))} {dtype.name}")
        # MATLAB counts the first axis fastest: the same bytes, axes reversed, are C order.
        values = np.frombuffer(data, dtype=dtype).reshape(shape[::-1]).T
        return values if dtype == meant else values.astype(meant)

    def structure(self, stream: Readable, limit: int) -> dict[str, Value]:
        widths = self.integers(stream, "a structure's field width")
        width = widths[0] if widths else 0
        if not 1 <= width <= 64:
            raise self.error(f"a structure with field names of {width} characters")
        _, text = self.element(stream, 64 * width, "a structure's field names")
        fields: dict[str, Value] = {}
        for start in range(0, len(text), width):
            field = bytes(text[start : start + width]).split(b"\0")[0].decode("latin-1")
            kind, size, data = self.tag(stream)
            if kind != MATRIX or data is not None or size > limit:
                raise self.error(f"field {field} is of kind {kind} and {size:,} bytes, not an array")
            if not self.wanted(field):
                self.skip(stream, size)
            elif size and (value := self.matrix(stream, limit, depth=1)[1]) is not None:
                fields[field] = value
        return fields

    def skip(self, stream: Readable, size: int) -> None:
        while size > 0:
            chunk = stream.read(min(size, CHUNK))
            if not chunk:
                raise self.error(f"ends {size:,} bytes before an array's end")
            size -= len(chunk)


def read_mat(path: Path, limit: int, wanted: Callable[[str], bool] = lambda field: True) -> dict[str, Value]:
    """The arrays of a .mat file by name, at most ``limit`` bytes; structures as dictionaries of the wanted fields."""
    with opened(path, limit + (64 << 20)) as stream:
        header = bytes(read_exactly(stream, 128, path, ".mat header"))
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if order is None or struct.unpack(order + "H", header[124:126])[0] != 0x0100:
            raise DataError(
                f"{path}: bytes 124 to 128 are {header[124:].hex()}, not 0001494d as in a MATLAB 5 .mat file; it is "
                "another file, or a broken one"
            )
        reader = _Reader(path, order, wanted)
        found: dict[str, Value] = {}
        while True:
            first = stream.read(1)
            if not first:
                return found
            name, value = _top_level(reader, _Prefixed(first, stream), limit)
            if value is not None:
                found[name] = value


def _top_level(reader: _Reader, stream: Readable, limit: int) -> tuple[str, Value | None]:
    kind, size, data = reader.tag(stream)
    if kind == COMPRESSED and data is None:
        inflated = _Inflated(stream, size, limit + (1 << 20), reader.path)
        inner, _, packed = reader.tag(inflated)
        if inner != MATRIX or packed is not None:
            raise reader.error(f"a compressed element of kind {inner} where an array should be")
        result = reader.matrix(inflated, limit)
        inflated.skip_rest()
        return result
    if kind != MATRIX or data is not None:
        raise reader.error(f"an element of kind {kind} where an array should be")
    return reader.matrix(stream, limit)


class _Prefixed:
    """A stream with one byte put back in front: the look that told the end of the file from one more element."""

    def __init__(self, first: bytes, stream: Readable) -> None:
        self._first, self._stream = first, stream

    def read(self, size: int, /) -> bytes:
        if self._first and size:
            first, self._first = self._first, b""
            return first
        return self._stream.read(size)
