"""What the library knows of a dataset before it is on disk: how to load it, its size, its source, its terms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchcaps.data.base import Examples
from torchcaps.data.files import sha256, verify
from torchcaps.files import write_text

Load = Callable[[str, Path], Examples[Any]]
"""A loader: the split and the data directory (the parent of all dataset folders) give the dataset."""

SUMS = "SHA256SUMS"
"""Written beside unpacked files: what they were in a verified archive."""


@dataclass(frozen=True)
class RemoteFile:
    """One file to download, and what becomes of it."""

    name: str  # in the dataset's folder
    urls: tuple[str, ...]  # the same file at several places, tried in turn
    size: int | None = None  # bytes; None where nobody has published it
    sha256: str | None = None  # None where nobody has published it: then ``inspect`` checks the contents
    yields: tuple[str, ...] = ()  # what unpacking gives; empty for a file that is read as it is
    unpacked_limit: int = 0  # the most bytes that unpacking may give
    inspect: Callable[[Path], object] | None = None  # raises DataError for contents that are not the dataset's


@dataclass(frozen=True)
class DownloadSource:
    """Where a dataset comes from and how its files are told from others."""

    folder: str  # inside the data directory
    files: tuple[RemoteFile, ...]
    # What a split is read from: raises DataError, with what to do, where it is not on disk.
    locate: Callable[[str, Path], tuple[Path, ...]]
    # SHA-256 of further forms of the files: unpacked ones, or other packings of the same bytes.
    known: Mapping[str, str] = field(default_factory=dict)
    # A split that few people need, and the file it comes from: fetched only when asked for.
    optional: Mapping[str, str] = field(default_factory=dict)

    @property
    def sums(self) -> dict[str, str]:
        """Every published SHA-256, by path inside the folder."""
        return {file.name: file.sha256 for file in self.files if file.sha256} | dict(self.known)

    def wanted(self, everything: bool = False) -> tuple[RemoteFile, ...]:
        """The files to fetch: without those of optional splits, or really all."""
        return tuple(file for file in self.files if everything or file.name not in self.optional.values())


@dataclass(frozen=True)
class Rendering:
    """How a dataset is made that this library makes once and then keeps on disk."""

    find: Callable[[str, Path], Path | None]  # the file of a split, if it was made
    make: Callable[[str, Path, Callable[[int, int], None] | None], object]  # told how many examples are done, of all
    size: int  # bytes of each split


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset by name: everything that commands and documentation say of it.

    Args:
        about: what it is, in a line.
        load: a function from a split and the data directory to the dataset.
        counts: examples of each split, which also names the splits.
        terms: on what terms it may be used.
        source: where it comes from; ``None`` for what ships with the package or is generated.
        needs: the dataset that a generated one is made from.
        rendering: how it is made, if this library renders it.
        text: whether it is text.
    """

    about: str
    load: Load
    counts: Mapping[str, int]  # examples of each split, which also names the splits
    terms: str
    source: DownloadSource | None = None  # None for what ships with the package or is generated
    needs: str = ""  # the dataset that a generated one is made from
    rendering: Rendering | None = None
    text: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.counts)

    @property
    def made(self) -> str:
        """Whether the images are this library's own work, in a word that goes with every number measured on them."""
        return "generated" if self.needs else "rendered" if self.rendering is not None else ""


def verify_published(path: Path, directory: Path, sums: Mapping[str, str], name: str) -> None:
    """Hold a file to its published SHA-256, if its path inside the dataset's folder has one."""
    published = sums.get(path.relative_to(directory).as_posix())
    verify(path, published, f"delete it and run `torchcaps data fetch {name}`")


def record_sums(directory: Path, paths: list[Path]) -> None:
    """Remember what verified files were, in the format of ``sha256sum``; entries of other files stay."""
    sums = recorded_sums(directory) | {path.relative_to(directory).as_posix(): sha256(path) for path in paths}
    write_text(directory / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))


def recorded_sums(directory: Path) -> dict[str, str]:
    """What ``record_sums`` wrote, by path inside the folder."""
    path = directory / SUMS
    if not path.is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in path.read_text(errors="replace").splitlines())
    return {parts[1].lstrip("*"): parts[0] for parts in lines if len(parts) == 2}
