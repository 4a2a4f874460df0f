"""``torchcaps models``: all models with their sizes, the papers' figures beside ours."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchcaps.models.registry import table


def models(contains: str = "") -> None:
    """List the models: parameters, multiply-adds of one example, and the paper's figure where it prints one."""
    shown = Table("model", box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for column in ("parameters", "paper", "MACs"):
        shown.add_column(column, justify="right", no_wrap=True)
    lines = table(contains)
    notes = list(dict.fromkeys(line.difference for line in lines if line.difference))
    for line in lines:
        note = f" [{notes.index(line.difference) + 1}]" if line.difference else ""
        macs = f"{line.macs / 1e6:,.1f} M"
        name = Text(f"{line.name}\n").append(f"  {line.about}", style="dim")
        shown.add_row(name, f"{line.parameters:,}", Text(line.paper + note), macs)
    console = Console()
    console.print(shown)
    for number, note in enumerate(notes, start=1):
        console.print(Text(f"[{number}] {note}"))


@dataclass(frozen=True)
class Models:
    """List the models of the registry with their parameters and multiply-adds, the papers' figures beside ours."""

    contains: Annotated[str, tyro.conf.Positional] = ""
    """Only names that contain this."""

    def run(self) -> int:
        models(self.contains)
        return 0
