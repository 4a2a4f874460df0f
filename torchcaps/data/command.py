"""``torchcaps data``: what there is, fetching it, looking at it, checking it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from torchcaps import data
from torchcaps.data.base import ArrayDataset, DataError, Dataset, Examples
from torchcaps.data.catalog import Entry, Source, recorded_sums
from torchcaps.data.download import Progress as Report
from torchcaps.data.download import fetch
from torchcaps.data.files import data_dir, sha256
from torchcaps.data.folder import FolderDataset
from torchcaps.data.sheet import caption, contact_sheet, evenly, save
from torchcaps.data.text import TextDataset

LOOKED_AT = 10_000  # examples of a generated dataset, which may have millions

DataDir = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
OutFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


@dataclass(frozen=True)
class List:
    """What datasets there are, which are on disk, and how to get the rest."""

    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        root = data_dir(self.data_dir)
        print(f"data directory: {root}")
        width = max(len("arrays:FILE.npz"), *map(len, data.DATASETS))
        for name, entry in data.DATASETS.items():
            counts = " + ".join(f"{count:,}" for count in entry.counts.values())
            print(f"{name:{width}}  {state(entry, root):20}  {entry.about} ({counts})")
        print(f"{'folder:PATH':{width}}  {'your own':20}  PATH/train/CLASS/*.png and PATH/test/CLASS/*.png")
        print(f"{'arrays:FILE.npz':{width}}  {'your own':20}  train_images, train_labels, test_images, test_labels")
        return 0


def state(entry: Entry, root: Path) -> str:
    """Where a dataset is, or how to get it, in a few words."""
    if entry.source is None:
        there = not entry.needs or state(data.entry(entry.needs), root) in ("ready", "on disk")
        return "ready" if there else f"needs {entry.needs}"
    present = [split for split in entry.splits if is_present(entry.source, split, root)]
    if set(present) >= set(entry.splits) - set(entry.source.optional):
        return "on disk"
    if present:
        return f"on disk: {', '.join(present)}"
    size = sum(file.size or 0 for file in entry.source.wanted())
    return f"to fetch, {size / 1e6:,.0f} MB" if size else "to fetch"


def is_present(source: Source | None, split: str, root: Path) -> bool:
    if source is None:
        return True
    try:
        source.locate(split, root)
    except DataError:
        return False
    return True


@dataclass(frozen=True)
class Fetch:
    """Download a dataset: verified, resumable, and never left half-written."""

    name: Name  # a name from `torchcaps data list`
    everything: bool = False  # optional splits too (svhn: extra, 1.3 GB)
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        entry, root = data.entry(self.name), data_dir(self.data_dir)
        if entry.source is None and entry.needs:
            print(f"{self.name} is made from {entry.needs}")
            return replace(self, name=entry.needs).run()
        if entry.source is None:
            print(f"{self.name} needs no files: nothing to fetch")
            return 0
        needed = [split for split in entry.splits if self.everything or split not in entry.source.optional]
        if all(is_present(entry.source, split, root) for split in needed):
            print(f"{self.name} is in {root / entry.source.folder}")
            return 0
        with progress_bar() as report:
            fetched = fetch(self.name, entry.source, root, report, self.everything)
        print(f"{self.name} is in {root / entry.source.folder} ({len(fetched)} files fetched and verified)")
        print(f"terms: {entry.terms}")
        return 0


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A bar for each file on a terminal; elsewhere a line when a file begins."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bars:

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name[-40:], total=total)
                if not console.is_terminal:
                    print(f"fetching {name}" + (f", {total:,} bytes" if total else ""), file=sys.stderr)
            bars.update(tasks[name], completed=done, total=total)

        yield report


@dataclass(frozen=True)
class Show:
    """A contact sheet with labels, as a PNG file; sentences of a text dataset are printed."""

    name: Name  # a name from `torchcaps data list`
    split: str = ""  # the first one of the dataset if not given
    count: int = 40  # how many examples
    out: OutFile = None  # NAME-SPLIT.png in the current directory if not given
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        if self.count < 1:
            raise DataError(f"--count {self.count}: at least one example is needed")
        dataset = _load_split(self.name, self.split, self.data_dir)
        if isinstance(dataset, TextDataset):
            chosen = dataset.batch(evenly(self.count, len(dataset)))
            for tokens, label in zip(chosen.tokens, chosen.label, strict=True):
                print(f"{caption(label, dataset.classes):>13}  {' '.join(tokens)}")
            return 0
        assert isinstance(dataset, Dataset)
        file = Path(self.name.partition(":")[2] or self.name).stem
        path = self.out or Path(f"{file}-{dataset.split}.png")
        save(contact_sheet(dataset, self.count), path)
        print(path)
        return 0


def _load_split(name: str, split: str, root: Path | None) -> Examples[Any]:
    if split or ":" not in name:
        return data.load(name, split or data.entry(name).splits[0], root)
    try:  # a user's own data have the splits that the user gave them
        return data.load(name, "train", root)
    except DataError:
        return data.load(name, "all", root)


@dataclass(frozen=True)
class Check:
    """Checksums, counts and class balance; the exit code says whether all is well."""

    name: Name  # a name from `torchcaps data list`
    data_dir: DataDir = None  # the data directory; else TORCHCAPS_DATA, else the user's cache directory

    def run(self) -> int:
        if ":" in self.name:
            dataset = _load_split(self.name, "", self.data_dir)
            print(f"{dataset.split}: {len(dataset):,} examples, {balance(dataset)}")
            return 0
        entry, root = data.entry(self.name), data_dir(self.data_dir)
        good = check_sums(entry.source, root) if entry.source is not None else True
        for split in entry.splits:
            optional = entry.source is not None and split in entry.source.optional
            if optional and not is_present(entry.source, split, root):
                print(f"       {split}: not on disk, and not needed")
                continue
            good = check_split(self.name, split, entry.counts[split], root) and good
        print(f"{self.name}: {'all is well' if good else 'not as it should be'}")
        return 0 if good else 1


def check_sums(source: Source, root: Path) -> bool:
    """Compare every file that has a known SHA-256: published, or recorded when it was unpacked."""
    directory = root / source.folder
    good = True
    for name, expected in (recorded_sums(directory) | source.sums).items():
        path = directory / name
        if path.is_file():
            same = sha256(path) == expected
            good = good and same
            print(f"{'ok    ' if same else 'WRONG '} {name}" + ("" if same else f": not SHA-256 {expected}"))
    return good


def check_split(name: str, split: str, expected: int, root: Path) -> bool:
    try:
        dataset = data.load(name, split, root)
    except DataError as error:
        print(f"WRONG  {split}: {error}")
        return False
    right = len(dataset) == expected
    count = f"{len(dataset):,} examples" + ("" if right else f", not {expected:,}")
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
        pieces = evenly(LOOKED_AT, len(dataset)).split(1000)
        labels = torch.cat([dataset.batch(indices).label for indices in pieces])
    if labels.ndim == 2:
        return (labels > 0).sum(0)
    return labels.bincount(minlength=len(dataset.classes))


@dataclass(frozen=True)
class Data:
    """Datasets: list, fetch, show, check."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Fetch, tyro.conf.subcommand("fetch")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Check, tyro.conf.subcommand("check")]
    ]

    def run(self) -> int:
        return self.action.run()
