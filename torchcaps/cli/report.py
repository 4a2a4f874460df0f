"""``torchcaps report``: the papers' figures against ours; or the page of one run, written anew."""

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated

import tyro

from torchcaps.lab.reports import read_records, read_run_records, results_table, run_report
from torchcaps.lab.reports.page import page, section, table, write
from torchcaps.lab.reports.results import COLUMNS, experiments
from torchcaps.lab.reports.words import text_table
from torchcaps.lab.training import Run

RESULTS = (Path("reproduction/records/runs"), Path("results/local"))
RUNS = Path("runs")
OutFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Report:
    """The table of results from the records of finished runs; with a run folder, that run's report.html anew."""

    run_folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """A run folder whose report.html to write; the table of all records if left out."""
    results: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")] = RESULTS
    """Folders of records; those of the project and of your own runs (runs/*/record.json) if left out."""
    markdown: bool = False
    """Print the table as Markdown."""
    html: OutFile = None
    """Write the table to this file, as a page."""

    def run(self) -> int:
        if self.run_folder is not None:
            print(run_report(Run.open(self.run_folder)))
            return 0
        by_default = self.results == RESULTS
        folders = [folder for folder in self.results if not by_default or folder.is_dir()]
        records = [record for folder in folders for record in read_records(folder)]
        records += read_run_records(RUNS, lambda note: print(note, file=sys.stderr)) if by_default else []
        found = experiments(records)
        places = ", ".join(map(str, (*self.results, RUNS) if by_default else self.results))
        if self.html is not None:
            about = "The papers' figures, and what runs of this machine and others reached, with 95 % intervals."
            cells = table(COLUMNS, [each.cells() for each in found], numbers=(6, 7))
            head = f"<header><h1>Paper against ours</h1><p class=faint>{escape(places)}</p></header>"
            write(self.html, page("torchcaps: results", [head, section("Results", about, cells)]))
            print(self.html)
        elif self.markdown:
            print(results_table(records))
        else:
            print(text_table([each.cells() for each in found], COLUMNS, right=(6, 7)))
        smoke = sum(record.scale == "smoke" for record in records)
        if not found or smoke:
            print(f"{len(records)} records in {places}, {smoke} of them of smoke runs, which are no results")
        return 0
