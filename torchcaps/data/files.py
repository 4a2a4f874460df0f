"""Files on disk: where they are, whether they are the published ones, and reading them without trusting them.

A header may promise any number of bytes. Nothing here allocates on a promise: reads grow with the bytes that really
arrive, and stop at a limit that the caller states.
"""

import gzip
import hashlib
import importlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

from torchcaps.data.base import DataError
from torchcaps.extras import explain_missing

CHUNK = 1 << 20
XZ_MEMORY = 256 << 20  # the decoder's dictionary, which an .xz header may otherwise claim to be gigabytes


@runtime_checkable
class Readable(Protocol):
    """All that the readers ask of a file: bytes in order."""

    def read(self, size: int, /) -> bytes: ...


def data_dir(root: str | os.PathLike[str] | None = None) -> Path:
    """The directory of all datasets: ``root`` if given, else ``TORCHCAPS_DATA``, else the user's cache directory.

    Args:
        root: a directory.

    Returns:
        The path.

    Example:
        >>> data_dir("datasets").name
        'datasets'
    """
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get("TORCHCAPS_DATA")
    return Path(named).expanduser() if named else cache_dir()


def cache_dir() -> Path:
    """The library's folder in the user's cache directory."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "torchcaps"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torchcaps"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchcaps"


def writable(directory: Path) -> bool:
    """Whether files can be put there, once it exists. Without any write permission it is closed, for root too."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return place.is_dir() and bool(place.stat().st_mode & 0o222) and os.access(place, os.W_OK)


@contextmanager
def locked(root: Path, folder: str) -> Iterator[Path]:
    """``root/folder``, made if need be, for one process at a time: a second one waits here."""
    directory = root / folder
    if not writable(root) or not writable(directory):
        raise DataError(f"{directory}: is read-only, or no folder can be there; name another with --data-dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Beside the folder, so that nothing but data is in it.
        with need("filelock", "filelock").FileLock(root / f".{folder}.lock"):
            yield directory
    except OSError as error:
        raise DataError(f"{directory}: cannot be written ({error}); name another with --data-dir") from error


def need(module: str, package: str) -> ModuleType:
    """An optional module, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = explain_missing(error) or f"this needs {package}, which is not installed; run: pip install {package}"
        raise DataError(reason) from error


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, modified: int) -> str:
    # Size and time are part of the key, so that a file that was replaced is read again.
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    """The file's SHA-256, remembered while its size and time of change stay the same."""
    with reading(path):
        state = path.stat()
        return _sha256(str(path), state.st_size, state.st_mtime_ns)


def verify(path: Path, published: str | None, remedy: str) -> None:
    """Hold a file to its published SHA-256; ``None`` where none was ever published."""
    if published is not None and (found := sha256(path)) != published:
        raise DataError(f"{path}: SHA-256 {found[:16]}… is not the published {published[:16]}…; {remedy}")


@contextmanager
def reading(path: Path, remedy: str = "fetch it again") -> Iterator[None]:
    """Turn whatever a broken file makes the standard library raise into one error that names the file."""
    try:
        yield
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, MemoryError) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{path}: cannot be read ({what}); {remedy}") from error


def read_exactly(
    stream: Readable,
    size: int,
    path: Path,
    what: str,
    into: bytearray | None = None,
    remedy: str = "fetch it again",
) -> bytearray:
    """``size`` bytes, appended to ``into`` as they arrive; a stream that ends before is an error."""
    data = bytearray() if into is None else into
    missing = size
    while missing > 0:
        chunk = stream.read(min(missing, CHUNK))
        if not chunk:
            raise DataError(f"{path}: ends after {size - missing:,} of {size:,} bytes of {what}; {remedy}")
        data += chunk
        missing -= len(chunk)
    return data


def expect_end(stream: Readable, path: Path, what: str) -> None:
    """Nothing may follow the last byte that the header promised."""
    if stream.read(1):
        raise DataError(f"{path}: more bytes than its header says for {what}; it is not the file it claims to be")


class _XzStream(io.RawIOBase):
    """An .xz file, decoded with a memory limit, which ``lzma.open`` does not offer."""

    def __init__(self, file: Readable) -> None:
        self._file, self._decoder = file, lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._decoder.eof:
            batch = self._file.read(CHUNK) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not batch:
                raise EOFError("the .xz stream ends too early")
            if data := self._decoder.decompress(batch, max_length=len(buffer)):
                buffer[: len(data)] = data
                return len(data)
        return 0


class Limited(io.RawIOBase):
    """A stream that refuses to yield more than ``limit`` bytes: what a decompression bomb runs into."""

    def __init__(self, file: Readable, limit: int, path: Path) -> None:
        self._file, self._limit, self._path, self._count = file, limit, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._file.read(len(buffer))
        self._count += len(data)
        if self._count > self._limit:
            raise DataError(
                f"{self._path}: unpacks to more than the {self._limit:,} bytes that this dataset can have; "
                "it is not the published file"
            )
        buffer[: len(data)] = data
        return len(data)


def magic(path: Path, size: int = 6) -> bytes:
    with reading(path), path.open("rb") as file:
        return file.read(size)


@contextmanager
def opened(path: Path, limit: int) -> Iterator[io.BufferedReader]:
    """The file's bytes, unpacked if they are gzip or xz (told by their first bytes), at most ``limit`` of them."""
    with reading(path):
        start = magic(path)
        with path.open("rb") as packed:
            file: Readable = packed
            if start.startswith(b"\x1f\x8b"):
                file = gzip.GzipFile(fileobj=packed)
            elif start.startswith(b"\xfd7zXZ\x00"):
                file = io.BufferedReader(_XzStream(packed), CHUNK)
            yield io.BufferedReader(Limited(file, limit, path), CHUNK)


def is_packed(path: Path) -> bool:
    return magic(path).startswith((b"\x1f\x8b", b"\xfd7zXZ\x00"))


def first_of(directories: tuple[Path, ...], names: tuple[str, ...]) -> Path | None:
    """The first of these names that is a file in one of these directories."""
    for directory in directories:
        for name in names:
            if (path := directory / name).is_file():
                return path
    return None


def missing(name: str, split: str, wanted: str, directory: Path, command: str = "") -> DataError:
    """What to say, and do, when a dataset is not on disk."""
    return DataError(
        f"{name}/{split}: no {wanted} in {directory}; run `torchcaps data fetch {command or name}`, or put the file "
        "there by hand (TORCHCAPS_DATA or --data-dir names another data directory)"
    )
