"""Archives that are not trusted: members are looked at one by one, and only plain files inside the archive come out.

Refused: absolute paths and ``..``, links and devices, encrypted members, exotic compression, more bytes or members than
the caller allows, and a zip whose sizes its own compressed bytes could never fill.
"""

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from torchcaps.data.base import DataError
from torchcaps.data.files import CHUNK, Readable, magic, opened, reading
from torchcaps.files import replace_file

MAX_MEMBERS = 100_000
DEFLATE_RATIO = 1032  # the most that one byte of deflate can expand to


class Member(NamedTuple):
    """A file inside an archive: its path there, its size, and its bytes while the iteration stands at it."""

    name: str
    size: int
    stream: Readable


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn what the archive modules raise for broken or unusual archives into one error that names the archive."""
    try:
        with reading(path):
            yield
    # zipfile raises NotImplementedError and RuntimeError for features and passwords it does not know.
    except (tarfile.TarError, zipfile.BadZipFile, RuntimeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: not a whole archive ({error}); fetch it again") from error


class _MemberStream:
    """A member's bytes. They are read outside the iteration, so their errors must be turned here too."""

    def __init__(self, file: Readable, path: Path) -> None:
        self._file, self._path = file, path

    def read(self, size: int, /) -> bytes:
        with _explain_errors(self._path):
            return self._file.read(size)


def members(path: Path, limit: int) -> Iterator[Member]:
    """The files of a .zip, .tar, .tar.gz or .tar.xz, in the archive's order, at most ``limit`` bytes in all."""
    if magic(path).startswith(b"PK"):
        yield from _zip_members(path, limit)
    else:
        yield from _tar_members(path, limit)


def _safe_name(path: Path, name: str, folder: bool = False) -> str:
    pure = PurePosixPath(name)
    if not pure.parts and not folder:  # "" and "."
        raise DataError(f"{path}: a member is named {name!r}, which names no file; do not trust it")
    # A backslash or a colon would be a separator or a drive on another system.
    if not name or pure.is_absolute() or ".." in pure.parts or any(mark in name for mark in "\\:\0"):
        raise DataError(f"{path}: a member is named {name[:80]!r}, which leads outside the archive; do not trust it")
    return str(pure)


def _too_large(path: Path, limit: int) -> DataError:
    return DataError(f"{path}: unpacks to more than the {limit:,} bytes that this dataset can have; do not trust it")


def _tar_members(path: Path, limit: int) -> Iterator[Member]:
    # Room for the headers: half a kilobyte and padding for each member, and an end mark.
    room = limit + limit // 64 + (4 << 20)
    with _explain_errors(path), opened(path, room) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        total = 0
        for count, info in enumerate(archive):
            name = _safe_name(path, info.name, folder=info.isdir())
            if count >= MAX_MEMBERS:
                raise DataError(f"{path}: more than {MAX_MEMBERS:,} members; it is not the published archive")
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise DataError(f"{path}: {name} is a link or a device, not a file; do not trust it")
            total += info.size
            if total > limit:
                raise _too_large(path, limit)
            file = archive.extractfile(info)
            assert file is not None  # only None for what is not a file
            yield Member(name, info.size, _MemberStream(file, path))


def _zip_members(path: Path, limit: int) -> Iterator[Member]:
    with _explain_errors(path), zipfile.ZipFile(path) as archive:
        for info in _check(path, archive.infolist(), limit):
            with archive.open(info) as file:
                yield Member(_safe_name(path, info.filename), info.file_size, _MemberStream(file, path))


def _check(path: Path, infos: list[zipfile.ZipInfo], limit: int) -> list[zipfile.ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise DataError(f"{path}: more than {MAX_MEMBERS:,} members; it is not the published archive")
    files = [info for info in infos if not info.filename.endswith("/")]  # is_dir fails for an empty name
    for info in files:
        name = _safe_name(path, info.filename)
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise DataError(f"{path}: {name} is a link or a device, not a file; do not trust it")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{path}: {name} is encrypted or compressed in an unusual way; fetch the archive again")
        if info.file_size > info.compress_size * DEFLATE_RATIO + 64:
            raise DataError(f"{path}: {name} claims {info.file_size:,} bytes that it cannot have; do not trust it")
    if sum(info.compress_size for info in files) > path.stat().st_size:
        raise DataError(f"{path}: its members overlap (a decompression bomb); do not trust it")
    if sum(info.file_size for info in files) > limit:
        raise _too_large(path, limit)
    return files


def unpack(path: Path, into: Path, limit: int, wanted: Callable[[str], bool] = lambda name: True) -> list[Path]:
    """Unpack the wanted members into a folder: each appears there whole, or nothing of the archive appears at all."""
    into.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=into))
    try:
        names = []
        for member in members(path, limit):
            if not wanted(member.name):
                continue
            target = staging / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                copied = _copy(member.stream, file)
            if copied != member.size:
                raise DataError(f"{path}: {member.name} ends after {copied:,} of {member.size:,} bytes; fetch it again")
            names.append(member.name)
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, into / name)
        return [into / name for name in names]
    except FileExistsError as error:
        raise DataError(f"{path}: the same member twice ({error.filename}); do not trust it") from error
    except OSError as error:  # a full disk, or names that no file can have
        raise DataError(f"{path}: cannot be unpacked ({error}); nothing of it was kept") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def ungzip(path: Path, into: Path, limit: int) -> Path:
    """Unpack one gzip file beside it, whole or not at all."""
    with replace_file(into) as file, opened(path, limit) as stream:
        _copy(stream, file)
    return into


def _copy(source: Readable, target: Any) -> int:
    copied = 0
    while chunk := source.read(CHUNK):
        target.write(chunk)
        copied += len(chunk)
    return copied
