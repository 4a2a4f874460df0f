"""``torchcaps data``: what there is, fetching it, looking at it, checking it."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from torchcaps import data
from torchcaps.data.bars import download_bars, rendering_bar
from torchcaps.data.base import ArrayDataset, DataError, Dataset, Examples, choose_evenly
from torchcaps.data.catalog import DatasetEntry, DownloadSource, recorded_sums
from torchcaps.data.download import fetch
from torchcaps.data.files import data_dir, sha256
from torchcaps.data.folder import FolderDataset
from torchcaps.data.sheet import caption, contact_sheet, save
from torchcaps.data.text import TextDataset
from torchcaps.terminal import printable

MOST_SHOWN = 2_000
LOOKED_AT = 10_000  # examples of a generated dataset, which may have millions

SOURCE_KINDS = f"{', '.join(data.SOURCES)}, folder:PATH or arrays:FILE.npz"

DataDir = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
OutFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


@dataclass(frozen=True)
class ListDatasets:
    """What datasets there are, which are on disk, and how to get the rest."""

    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        root = data_dir(self.data_dir)
        print(f"data directory: {root}")
        rows = [
            (name, state(entry, root), f"{entry.about} ({' + '.join(f'{count:,}' for count in entry.counts.values())})")
            for name, entry in data.DATASETS.items()
        ]
        rows += [
            ("folder:PATH", "your own", "PATH/CLASS/*.png, or PATH/train/CLASS/*.png and PATH/test/CLASS/*.png"),
            ("arrays:FILE.npz", "your own", "images, labels; or train_images, train_labels, test_images, test_labels"),
            ("NAME:SOURCE", "generated", f"a generated dataset from another source: {SOURCE_KINDS}"),
        ]
        for line in columns(rows, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
            print(line)
        print("torchcaps data fetch NAME gets what is to be fetched or rendered")
        return 0


def columns(rows: list[tuple[str, str, str]], width: int | None) -> Iterator[str]:
    """Rows under each other, the last column wrapped to the terminal's width; each row one line without a terminal."""
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    indent = first + second + 4
    for name, state_, about in rows:
        lines = [about] if width is None else textwrap.wrap(about, max(24, width - indent))
        yield f"{name:{first}}  {state_:{second}}  {lines[0]}"
        yield from (" " * indent + line for line in lines[1:])


def state(entry: DatasetEntry, root: Path) -> str:
    """Where a dataset is, or how to get it, in a few words."""
    if entry.rendering is not None:
        there = all(entry.rendering.find(split, root) for split in entry.splits)
        return "rendered" if there else f"to render, {entry.rendering.size * len(entry.splits) / 1e6:,.0f} MB"
    if entry.source is None:
        there = not entry.needs or state(data.entry(entry.needs), root) in ("ready", "on disk", "rendered")
        return (entry.made or "ready") if there else f"{entry.made}, needs {entry.needs}"
    present = [split for split in entry.splits if is_present(entry.source, split, root)]
    if set(present) >= set(entry.splits) - set(entry.source.optional):
        return "on disk"
    if present:
        return f"on disk: {', '.join(present)}"
    size = sum(file.size or 0 for file in entry.source.wanted())
    return f"to fetch, {size / 1e6:,.0f} MB" if size else "to fetch"


def is_present(source: DownloadSource | None, split: str, root: Path) -> bool:
    if source is None:
        return True
    try:
        source.locate(split, root)
    except DataError:
        return False
    return True


@dataclass(frozen=True)
class Fetch:
    """Download a dataset (or render it, if it is a rendered one): verified, resumable, never left half-written."""

    name: Name  # a name from `torchcaps data list`
    everything: bool = False  # optional splits too (svhn: extra, 1.3 GB)
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        entry, root = data.entry(self.name), data_dir(self.data_dir)
        if entry.source is None and entry.needs:
            print(f"{self.name} is generated from {entry.needs}")
            return replace(self, name=entry.needs).run()
        if entry.rendering is not None:
            render_missing(self.name, entry, entry.splits, root)
            for split in entry.splits:
                print(f"{self.name}/{split} (rendered) is in {entry.rendering.find(split, root)}")
            return 0
        if entry.source is None:
            print(f"{self.name} needs no files: nothing to fetch")
            return 0
        needed = [split for split in entry.splits if self.everything or split not in entry.source.optional]
        if all(is_present(entry.source, split, root) for split in needed):
            print(f"{self.name} is in {root / entry.source.folder}")
            return 0
        with download_bars() as report:
            fetched = fetch(entry.source, root, report, self.everything)
        print(f"{self.name} is in {root / entry.source.folder} ({len(fetched)} files fetched and verified)")
        print(f"terms: {entry.terms}")
        return 0


@dataclass(frozen=True)
class Show:
    """A contact sheet with labels, as a PNG file; sentences of a text dataset are printed."""

    name: Name  # a name from `torchcaps data list`
    split: str = ""  # the first one of the dataset if not given
    count: int = 40  # how many examples
    out: OutFile = None  # NAME-SPLIT.png in the current directory if not given
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        if not 1 <= self.count <= MOST_SHOWN:
            raise DataError(f"--count {self.count}: a sheet has 1 to {MOST_SHOWN:,} examples")
        root, split = data_dir(self.data_dir), self.split or data.whole_split(self.name, data.splits(self.name)[0])
        if not data.is_own(self.name):
            render_missing(self.name, data.entry(self.name), (split,), root)
        dataset = data.load(self.name, split, root)
        if isinstance(dataset, TextDataset):
            chosen = dataset.batch(choose_evenly(self.count, len(dataset)))
            for tokens, label in zip(chosen.tokens, chosen.label, strict=True):
                print(f"{caption(label, dataset.classes):>13}  {' '.join(tokens)}")
            return 0
        assert isinstance(dataset, Dataset)
        path = self.out or Path(f"{file_name(self.name)}-{dataset.split}.png")
        save(contact_sheet(dataset, self.count), path)
        print(path)
        return 0


def file_name(name: str) -> str:
    """A dataset's name as part of a file's name.

    >>> file_name("multimnist:mnist_sample"), file_name("shifted_mnist:arrays:/home/me/mine.npz")
    ('multimnist-mnist_sample', 'shifted_mnist-mine')
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in data.RECIPES:
        return f"{kind}-{file_name(rest)}"
    return Path(rest).expanduser().absolute().stem if colon else name


def render_missing(name: str, entry: DatasetEntry, splits: tuple[str, ...], root: Path) -> None:
    """Render these splits if the dataset is a rendered one and they are not on disk, with a bar to look at."""
    if entry.rendering is None:
        return
    for split in splits:
        if split in entry.splits and entry.rendering.find(split, root) is None:
            with rendering_bar(f"{name}/{split}", entry.counts[split]) as report:
                entry.rendering.make(split, root, report)


@dataclass(frozen=True)
class DataCheck:
    """Checksums, counts and class balance; the exit code says whether all is well."""

    name: Name  # a name from `torchcaps data list`
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        root = data_dir(self.data_dir)
        good = check_own(self.name, root) if data.is_own(self.name) else self.known(data.entry(self.name), root)
        print(f"{self.name}: {'all is well' if good else 'not as it should be'}")
        return 0 if good else 1

    def known(self, entry: DatasetEntry, root: Path) -> bool:
        render_missing(self.name, entry, entry.splits, root)
        good = check_sums(entry.source.sums, root / entry.source.folder) if entry.source is not None else True
        if entry.rendering is not None:
            files = [file for split in entry.splits if (file := entry.rendering.find(split, root))]
            for folder in {file.parent for file in files}:
                good = check_sums({}, folder) and good
        for split in entry.splits:
            optional = entry.source is not None and split in entry.source.optional
            if optional and not is_present(entry.source, split, root):
                print(f"       {split}: not on disk, and not needed")
                continue
            good = check_split(self.name, split, entry.counts[split], root) and good
        return good


def check_own(name: str, root: Path) -> bool:
    """Every split of a user's own data, and every image of it that a folder has."""
    splits = dict.fromkeys(data.whole_split(name, split) for split in data.splits(name))
    good = [check_split(name, split, None, root) for split in splits]
    if all(good):
        for note in data.load(name, data.splits(name)[0], root).notes:
            print(f"       {note}")
    return all(good)


def check_sums(published: Mapping[str, str], directory: Path) -> bool:
    """Compare every file that has a known SHA-256: published, or recorded when it was unpacked or rendered."""
    good = True
    for name, expected in (recorded_sums(directory) | dict(published)).items():
        path = directory / name
        if path.is_file():
            same = sha256(path) == expected
            good = good and same
            print(f"{'ok    ' if same else 'WRONG '} {name}" + ("" if same else f": not SHA-256 {expected}"))
    return good


def check_split(name: str, split: str, expected: int | None, root: Path) -> bool:
    """Load a split, count it, and say what it holds; ``expected`` is None where nobody knows."""
    try:
        dataset = data.load(name, split, root)
    except DataError as error:
        print(printable(f"WRONG  {split}: {error}"))
        return False
    damaged = dataset.find_damaged() if isinstance(dataset, FolderDataset) else []  # only headers were read so far
    for problem in damaged:
        print(printable(f"WRONG  {split}: {problem}"))
    if damaged:
        return False
    right = expected in (None, len(dataset))
    kind = name.partition(":")[0]
    made = f"{data.DATASETS[kind].made} examples".lstrip() if kind in data.DATASETS else "examples"
    count = f"{len(dataset):,} {made}" + ("" if right else f", not {expected:,}")
    print(f"{'ok    ' if right else 'WRONG '} {split}: {count}, {balance(dataset)}")
    return right


def balance(dataset: Examples[Any]) -> str:
    """How many examples the rarest and the commonest class have."""
    counts = class_counts(dataset)
    known = isinstance(dataset, ArrayDataset | FolderDataset | TextDataset) or len(dataset) <= LOOKED_AT
    among = "" if known else f" (among {LOOKED_AT:,})"
    low, high = int(counts.argmin()), int(counts.argmax())
    if counts[low] == counts[high]:
        return f"{len(counts)} classes of {int(counts[low]):,} each{among}"
    names = dataset.classes
    return f"{len(counts)} classes, {counts[low]:,} ({names[low]}) to {counts[high]:,} ({names[high]}) each{among}"


def class_counts(dataset: Examples[Any]) -> torch.Tensor:
    """Examples of each class, among ``LOOKED_AT`` of a generated dataset; one with several labels counts for each."""
    if isinstance(dataset, ArrayDataset | FolderDataset | TextDataset):
        labels = dataset.labels
    else:  # the labels come only with the examples
        pieces = choose_evenly(LOOKED_AT, len(dataset)).split(1000)
        labels = torch.cat([dataset.batch(indices).label for indices in pieces])
    if labels.ndim == 2:
        return (labels > 0).sum(0)
    return labels.bincount(minlength=len(dataset.classes))


@dataclass(frozen=True)
class DataCommand:
    """Datasets: list, fetch, show, check."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[ListDatasets, tyro.conf.subcommand("list")]
        | Annotated[Fetch, tyro.conf.subcommand("fetch")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[DataCheck, tyro.conf.subcommand("check")]
    ]

    def run(self) -> int:
        return self.action.run()
