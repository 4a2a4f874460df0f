"""What lies in a folder of images: splits, classes, files that are images, and all that is left out, by name."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps.data.base import DataError
from torchcaps.data.files import reading
from torchcaps.data.labels import class_name
from torchcaps.data.pictures import SUFFIXES, PictureHeader, read_header
from torchcaps.terminal import printable

SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}
"""Splits, and the names of folders that hold them."""
SHOWN = 5  # names in a note


@dataclass
class Listing:
    """The images of one split, by class and name, with their headers; and what else was found."""

    paths: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the class of each
    headers: list[PictureHeader] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def find_splits(directory: Path) -> dict[str, Path]:
    """The folder of each split, or ``all`` and the folder itself. A folder called train that holds images and no
    folders is a class."""
    if not directory.exists():
        raise DataError(f"{directory}: no such folder; `folder:PATH` wants PATH/CLASS/NAME.png")
    if not directory.is_dir():
        raise DataError(f"{directory}: is a file; `folder:PATH` wants a folder with PATH/CLASS/NAME.png")
    found: dict[str, Path] = {}
    for split, names in SPLITS.items():
        there = [directory / name for name in names if _has_folders(directory / name)]
        if len(there) > 1:
            raise DataError(f"{directory}: {there[0].name} and {there[1].name} are both the {split} split; keep one")
        found |= {split: there[0]} if there else {}
    return found or {"all": directory}


def _has_folders(place: Path) -> bool:
    return place.is_dir() and any(inside.is_dir() for inside in visible(place))


def list_images(place: Path, root: Path) -> Listing:
    """All images of a split's folder. Those that cannot be read are left out, as are files of other kinds."""
    found = Listing()
    seen: dict[str, str] = {}
    for entry in visible(place):
        if not entry.is_dir():
            (found.outside if _is_image(entry) else found.others).append(_short(entry, root))
            continue
        name = class_name(entry.name)
        if name in seen:
            raise DataError(f"{entry}: class {name!r} is also that of the folder {seen[name]!r}; rename one of them")
        seen[name] = entry.name
        _list_class(entry, name, root, found)
    if not found.paths:
        loose = f" ({len(found.outside)} images lie outside of class folders)" if found.outside else ""
        raise DataError(f"{place}: no class folders{loose}; put images at {place}/CLASS/NAME.png")
    return found


def _list_class(folder: Path, name: str, root: Path, found: Listing) -> None:
    before, problem = len(found.paths), ""
    for path in _files(folder):
        if not _is_image(path):
            found.others.append(_short(path, root))
            continue
        try:
            header = read_header(path, str(path))
        except DataError as error:
            problem = problem or str(error)
            found.unreadable.append(f"{_short(path, root)} ({str(error).removeprefix(f'{path}: ')})")
            continue
        if path.parent != folder:
            found.nested.append(_short(path.parent, root))
        found.paths.append(path)
        found.names.append(name)
        found.headers.append(header)
    if len(found.paths) == before:
        raise DataError(problem or f"{folder}: no images; a class folder holds files ending in {', '.join(SUFFIXES)}")


def _files(folder: Path) -> list[Path]:
    """All files below a folder, in order; links to folders are not followed, as they may lead back."""
    files: list[Path] = []
    with reading(folder, "make it readable"):
        for place, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files += [Path(place) / name for name in sorted(names) if not name.startswith(".")]
    return files


def _raise(error: OSError) -> None:
    raise error


def visible(folder: Path) -> list[Path]:
    """What is in a folder, in order, without hidden files: some systems put "._1.png" beside "1.png"."""
    with reading(folder, "make it readable"):
        return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _short(path: Path, root: Path) -> str:
    return printable(path.relative_to(root))


def describe(listings: Sequence[Listing]) -> list[str]:
    """In words: what reading does to the images, and what is left out."""
    headers = [header for listing in listings for header in listing.headers]
    notes: list[str] = []
    traits = (
        ("transparent", "with transparency, composed on white"),
        ("turned", "turned upright as EXIF says"),
        ("deep", "of 16 bits, scaled"),
        ("frames", "of several frames, of which the first is used"),
    )
    for trait, words in traits:
        if count := sum(getattr(header, trait) for header in headers):
            notes.append(f"{_count(count, 'image', 'images')} {words}")
    nested = [name for listing in listings for name in listing.nested]
    if nested:
        inside = _some(sorted(set(nested)))
        notes.append(f"{_count(len(nested), 'image', 'images')} in folders inside class folders: {inside}")
    unreadable = [name for listing in listings for name in listing.unreadable]
    if unreadable:
        files = _count(len(unreadable), "unreadable file", "unreadable files")
        notes.append(f"left out: {files}: {_some(unreadable)}")
    outside = [name for listing in listings for name in listing.outside]
    if outside:
        images = _count(len(outside), "image", "images")
        notes.append(f"left out: {images} outside of class folders: {_some(outside)}")
    others = Counter(Path(name).suffix.lower() or "no suffix" for listing in listings for name in listing.others)
    if others:
        kinds = [f"{kind} {count}" for kind, count in sorted(others.items())]
        notes.append(f"left out: {_count(others.total(), 'file', 'files')} of other kinds: {_some(kinds)}")
    return notes


def _count(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
