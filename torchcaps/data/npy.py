"""Numpy's .npy arrays of plain numbers and strings, read without trusting them: no pickles, no promises believed."""

import math
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchcaps.data.archives import Member
from torchcaps.data.base import DataError
from torchcaps.data.files import Readable, read_exactly, reading

DTYPE = re.compile(r"[<>|=]?([biuf][1248]|U[1-9]\d{0,2})")
FIELD = {
    "descr": re.compile(r"'descr' *: *'([^']*)'"),
    "fortran_order": re.compile(r"'fortran_order' *: *(True|False)"),
    "shape": re.compile(r"'shape' *: *\(([0-9, ]*)\)"),
}
LONGEST = 4096  # characters of a header; numpy writes about a hundred


class ArrayHeader(NamedTuple):
    """What an array says of itself, and how many bytes it took to say so."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    length: int

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape))} {self.dtype}"


def read_header(stream: Readable, path: Path, what: str, remedy: str) -> ArrayHeader:
    def error(complaint: str) -> DataError:
        return DataError(f"{path}: {what} {complaint}; {remedy}")

    start = bytes(read_exactly(stream, 8, path, what, remedy=remedy))
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise error(f"starts with {start.hex()}, not as a numpy array does")
    width = 2 if start[6] == 1 else 4
    length = struct.unpack("<H" if width == 2 else "<I", read_exactly(stream, width, path, what, remedy=remedy))[0]
    if length > LONGEST:
        raise error(f"has a header of {length:,} bytes")
    text = bytes(read_exactly(stream, length, path, what, remedy=remedy)).decode("latin-1")
    # The header is a Python dictionary, but hostile text is not for Python's parser, which may fail in many ways.
    descr, order, sizes = (FIELD[key].search(text) for key in ("descr", "fortran_order", "shape"))
    if descr is None or order is None or sizes is None:
        raise error(f"has the header {text.strip()[:80]!r}, which names no plain type, order and shape")
    if "O" in descr[1]:
        raise error("holds pickled objects, which are never loaded")
    if not DTYPE.fullmatch(descr[1]):
        raise error(f"is of type {descr[1][:40]!r}, not of numbers")
    parts = [size.strip() for size in sizes[1].split(",")]
    parts = parts[:-1] if parts[-1] == "" else parts  # (), (3,)
    if len(parts) > 8 or not all(size.isdigit() for size in parts):
        raise error(f"has the shape ({sizes[1][:60]})")
    try:
        return ArrayHeader(tuple(map(int, parts)), np.dtype(descr[1]), order[1] == "True", 8 + width + length)
    except TypeError as broken:
        raise error(f"is of type {descr[1]!r}, which numpy does not know") from broken


def read_npy(path: Path, member: Member) -> np.ndarray:
    """An array inside an .npz file, in memory."""

    remedy = "write the file with numpy.savez_compressed"

    def error(complaint: str) -> DataError:
        return DataError(f"{path}: {member.name} {complaint}; {remedy}")

    header = read_header(member.stream, path, member.name, remedy)
    if header.size != member.size - header.length:
        raise error(f"claims {header} in {member.size:,} bytes")
    if header.size > _memory():  # a small file may unpack to this honestly: zeros pack a thousandfold
        raise error(f"unpacks to {header.size:,} bytes, more than this machine's memory")
    data = read_exactly(member.stream, header.size, path, member.name, remedy=remedy)
    values = np.frombuffer(data, dtype=header.dtype)
    # One more read, so that the archive's own checksum is compared.
    if member.stream.read(1):
        raise error("goes on after its last value")
    return values.reshape(header.shape[::-1]).T if header.fortran else values.reshape(header.shape)


def map_npy(path: Path, remedy: str) -> np.ndarray:
    """An .npy file, mapped into memory: copy-on-write, as torch wants memory that it may write to."""
    with reading(path, remedy), path.open("rb") as stream:
        header = read_header(stream, path, "the array", remedy)
        held = path.stat().st_size - header.length
        if header.size != held or header.fortran or not header.size:
            raise DataError(f"{path}: claims {header} in {held:,} bytes; {remedy}")
        return np.memmap(path, dtype=header.dtype, mode="c", offset=header.length, shape=header.shape)


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 64 << 30
