"""``torchcaps models``: all models with their sizes, the papers' figures beside ours; and those that come trained."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchcaps.models.pretrained import describe_pretrained, list_pretrained
from torchcaps.models.registry import list_models, table
from torchcaps.typed import show, suggest

ALL = "`torchcaps models` lists all"


def models(contains: str = "") -> None:
    """List the models: parameters, multiply-adds of one example, and the paper's figure where it prints one."""
    shown = _make_table("model", "parameters", "paper", "MACs")
    lines = table(contains)
    notes = list(dict.fromkeys(line.difference for line in lines if line.difference))
    for line in lines:
        note = f" [{notes.index(line.difference) + 1}]" if line.difference else ""
        macs = f"{line.macs / 1e6:,.1f} M"
        name = Text(f"{line.name}\n").append(f"  {line.about}", style="dim")
        shown.add_row(name, f"{line.parameters:,}", Text(line.paper + note), macs)
    console = Console()
    if lines:
        console.print(shown)
    for number, note in enumerate(notes, start=1):
        console.print(Text(f"[{number}] {note}"))


def pretrained(contains: str = "") -> None:
    """List the models that come trained: routing, parameters, and test accuracy with its interval."""
    lines = [describe_pretrained(name) for name in list_pretrained() if contains in name]
    if not lines:
        return
    shown = _make_table("pretrained model", "parameters", "test accuracy")
    for line in lines:
        name = Text(f"{line.name}\n").append(f"  {line.routing}, on {line.data}", style="dim")
        shown.add_row(name, f"{line.parameters:,}", line.accuracy)
    console = Console()
    console.print(shown)
    console.print(Text("tc.models.create(NAME, pretrained=True); commands take NAME in place of RUN", style="dim"))


def _make_table(first: str, *others: str) -> Table:
    table = Table(first, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


@dataclass(frozen=True)
class Models:
    """List the models of the registry with their parameters and multiply-adds, the papers' figures beside ours; and the
    trained ones that come with the package."""

    contains: Annotated[str, tyro.conf.Positional] = ""
    """Only names that contain this."""

    def run(self) -> int:
        names = [*list_models(), *list_pretrained()]
        if not any(self.contains in name for name in names):
            raise ValueError(f"no model has {show(self.contains)} in its name; {suggest(self.contains, names, ALL)}")
        models(self.contains)
        pretrained(self.contains)
        return 0
