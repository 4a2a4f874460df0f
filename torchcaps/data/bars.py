"""Progress to look at: bars on a terminal, and elsewhere a plain line when something begins."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from torchcaps.data.download import Progress as Report


@contextmanager
def download_bars() -> Iterator[Report]:
    """A bar for each file."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bars:

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name[-40:], total=total)
                if not console.is_terminal:
                    print(f"fetching {name}" + (f", {total:,} bytes" if total else ""), file=sys.stderr)
            bars.update(tasks[name], completed=done, total=total)

        yield report


@contextmanager
def rendering_bar(name: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar that counts pictures."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    if not console.is_terminal:
        print(f"rendering {name}, {total:,} pictures, once", file=sys.stderr)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(f"rendering {name}", total=total)
        yield lambda done, of: bars.update(task, completed=done, total=of)
