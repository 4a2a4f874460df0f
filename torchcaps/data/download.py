"""Fetching datasets: verified, resumable, atomic, one process at a time.

Bytes arrive in a ``.part`` file, which a later try goes on from; a file gets its name only after its SHA-256 was found
right. A broken or forged download therefore never looks like data.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchcaps.data.archives import members, ungzip, unpack
from torchcaps.data.base import DataError
from torchcaps.data.catalog import DownloadSource, RemoteFile, record_sums
from torchcaps.data.files import CHUNK, locked, magic, need, sha256

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes so far and the bytes in all (None where the server does not say)."""

WAITS = (1.0, 5.0)  # seconds before another try
PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that may be others in a moment
UNKNOWN_SIZE_LIMIT = 1 << 30  # for the rare file whose size nobody has published
TIMEOUT = (15.0, 60.0)  # seconds to connect, and between two packets


class _PartError(OSError):
    """What is on disk is no part of the file that the server has."""


class TransferError(DataError):
    """The bytes did not come, or not all of them: trying again, or another mirror, may help."""


def fetch(source: DownloadSource, root: Path, progress: Progress | None = None, everything: bool = False) -> list[str]:
    """Download, verify and unpack what is missing of a dataset; the names of the files that had to be fetched."""
    # A second process waits here, then finds everything in place. The lock is the folder's: datasets may share one.
    with locked(root, source.folder) as directory:
        # By processes that were killed; pooch, which older versions used, left "tmp" and eight letters.
        for left in (*directory.glob(".unpacking-*"), *directory.glob("tmp????????")):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)
        lacking = [file for file in source.wanted(everything) if not _is_there(file, directory)]
        for number, file in enumerate(lacking):
            try:
                _fetch_file(file, directory, progress)
            except TransferError as error:
                raise TransferError(f"{error}.\n{by_hand(lacking[number:], directory)}") from error
        return [file.name for file in lacking]


def _is_there(file: RemoteFile, directory: Path) -> bool:
    return all((directory / part).is_file() for part in file.yields or (file.name,))


def _fetch_file(file: RemoteFile, directory: Path, progress: Progress | None) -> None:
    path = directory / file.name
    _retrieve(file, path, progress)
    if file.yields:
        record_sums(directory, _unpack(file, path, directory))
        path.unlink()


def _unpack(file: RemoteFile, path: Path, directory: Path) -> list[Path]:
    if magic(path).startswith(b"\x1f\x8b") and not file.name.endswith((".tar.gz", ".tgz")):
        return [ungzip(path, directory / file.yields[0], file.unpacked_limit)]
    found = unpack(path, directory, file.unpacked_limit, wanted=set(file.yields).__contains__)
    lacking = set(file.yields) - {part.relative_to(directory).as_posix() for part in found}
    if lacking:
        inside = [member.name for member in members(path, file.unpacked_limit)][:3]
        raise DataError(f"{path}: holds no {min(lacking)} (it holds {inside}…); it is not the published archive")
    return found


def _retrieve(file: RemoteFile, path: Path, progress: Progress | None) -> None:
    if path.is_file() and file.sha256 in (None, sha256(path)):  # brought by hand: not ours to delete
        if file.inspect is not None:
            file.inspect(path)
        return
    trouble = ""
    for url in file.urls:
        part = path.with_name(f".{path.name}.part")
        # What was begun by an earlier, broken transfer may not fit together: then once more from the start.
        for _ in range(2 if part.exists() else 1):
            try:
                _Transfer(file, part, progress).bring(url)
                _check_contents(file, part)
                part.replace(path)
                return
            except TransferError as error:
                trouble = str(error)
                break
            except DataError as error:  # wrong bytes
                part.unlink(missing_ok=True)
                trouble = f"what {url} gave is not the published file ({_short(error)})"
    raise TransferError(trouble)


def _check_contents(file: RemoteFile, part: Path) -> None:
    if file.sha256 is not None and (found := sha256(part)) != file.sha256:
        raise DataError(f"its SHA-256 is {found}, not {file.sha256}")
    if file.inspect is not None:
        file.inspect(part)


def _may_pass(requests: Any, error: Any) -> bool:
    """Whether another try may help: for broken connections, and for servers that are busy."""
    return not isinstance(error, requests.HTTPError) or error.response.status_code in PASSING


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def by_hand(files: list[RemoteFile], directory: Path) -> str:
    """What a person does without a network: a line, and one more for each file."""
    lines = [
        "By hand: on any machine, download what follows; put it under its name where the arrow says; run this again"
    ]
    for file in files:
        size = f"{file.size:,} bytes, " if file.size else ""
        digest = f"SHA-256 {file.sha256}" if file.sha256 else "checked by its contents"
        lines.append(f"  {file.urls[0]} ({size}{digest}) -> {directory / file.name}")
    return "\n".join(lines)


class _Transfer:
    """Brings a file into a ``.part`` file, goes on from what is there, and stops at the published size."""

    def __init__(self, file: RemoteFile, part: Path, progress: Progress | None) -> None:
        self.file, self.part, self.progress = file, part, progress

    def bring(self, url: str) -> None:
        """Try, wait and try again, as long as another try may help."""
        requests, urllib3 = need("requests", "requests"), need("urllib3", "urllib3")
        for wait in (*WAITS, None):
            try:
                self._transfer(requests, url)
                return
            except (requests.RequestException, urllib3.exceptions.HTTPError, _PartError) as error:
                if wait is None or not _may_pass(requests, error):
                    raise TransferError(self._explain(requests, url, error)) from error
                time.sleep(wait)

    def _explain(self, requests: Any, url: str, error: Any) -> str:
        host = urlsplit(url).hostname
        if isinstance(error, requests.HTTPError):
            return f"{host} answers {error.response.status_code} for {url}"
        if isinstance(error, _PartError):
            return f"{host} answers 416 for {url}: {error}"
        if isinstance(error, requests.ConnectionError) and not isinstance(error, requests.exceptions.ReadTimeout):
            return f"no connection to {host} ({type(error).__name__}, {len(WAITS) + 1} tries)"
        kept = self.part.stat().st_size if self.part.exists() else 0
        return (
            f"{host} broke off {url} after {kept:,} bytes ({type(error).__name__}); they are kept, and the next try "
            "goes on from there"
        )

    def _transfer(self, requests: Any, url: str) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
        if self.file.size is not None and have == self.file.size:
            return
        # Bytes as they are: a transfer encoding of the server's choice would break both the sum and the resuming.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416 and have:
                self.part.unlink()
                raise _PartError(
                    f"there is nothing after the {have:,} bytes that an earlier try left, so they are not of this "
                    "file; they were deleted"
                )
            response.raise_for_status()
            if response.status_code != 206:  # the server sends everything again
                have = 0
            length = response.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else self.file.size
            self._store(response, have, total)

    def _store(self, response: Any, have: int, total: int | None) -> None:
        limit = self.file.size or UNKNOWN_SIZE_LIMIT
        with self.part.open("r+b" if have else "wb") as target:
            target.seek(have)
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                have += len(chunk)
                if have > limit:
                    target.close()
                    self.part.unlink()
                    raise TransferError(f"{response.url} sends more than the {limit:,} bytes of the published file")
                target.write(chunk)
                if self.progress is not None:
                    self.progress(self.file.name, have, total)
