"""``torchcaps doctor``: why a run does not learn, and what to do about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from torchcaps.terminal import printable

if TYPE_CHECKING:
    from torchcaps.lab.diagnosis import Diagnosis


@dataclass(frozen=True)
class Doctor:
    """Examine a run: its data, capsules, couplings, gradients, answers and log, and short trainings of copies. Weights
    stay as they are; what is found goes to diagnosis.json and report.html. The exit code is 1 if anything is found."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, finished or not."""
    which: Literal["best", "last"] = "last"
    """The model to examine: the last, or the best on validation examples."""
    examples: int = 256
    """Training examples to examine, and as many that were not trained on."""
    quick: bool = False
    """Train no copies: nothing is said of learning rates, nor whether a few examples can be learned by heart."""
    device: str = ""
    """cpu, cuda or cuda:1; a GPU if there is one if left out."""
    no_report: bool = False
    """Leave report.html as it is."""

    def run(self) -> int:
        from rich.console import Console
        from rich.markup import escape

        from torchcaps.lab.reports.diagnosis import diagnose_run, write_diagnosis
        from torchcaps.lab.reports.run_report import run_report
        from torchcaps.lab.training import Run

        if self.examples < 2:
            raise ValueError(f"--examples is {self.examples}; give at least 2, at best a hundred or more")
        run, console = Run.open(self.run_folder), Console()
        with console.status(f"examining {escape(printable(run.folder))} …"):
            found = diagnose_run(run, self.which, examples=self.examples, trials=not self.quick, device=self.device)
        show(found, console)
        print(f"measurements: {write_diagnosis(run, found)}")
        if not self.no_report:
            try:
                print(f"report: {run_report(run)}#diagnosis")
            except (ValueError, OSError) as error:
                print(printable(f"no report: {error}"))
        return 0 if found.healthy else 1


def show(found: "Diagnosis", console) -> None:
    """The findings as a table, and what could not be checked."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from torchcaps.lab.diagnosis.diagnosis import summarize

    console.print(Text(printable(f"{found.name}: {summarize(found)}"), style="bold"))
    if found.findings:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for column in ("finding", "what is wrong", "what to do"):
            table.add_column(column)
        for finding in found.findings:
            name = Text(finding.name, style="" if found.follows(finding) else "bold")
            if found.follows(finding):
                name.append("\nmay follow from the others", style="dim")
            wrong = Text(printable(f"{finding.where}: {finding.check.symptom}\n"))
            table.add_row(name, wrong.append(finding.reading, style="dim"), Text(finding.check.remedy))
        console.print(table)
        for page in dict.fromkeys(finding.page for finding in found.findings):
            console.print(Text(page, style="dim"), soft_wrap=True)
    for reason in found.skipped:
        console.print(Text(printable(f"not checked: {reason}"), style="dim"))
