"""``torchcaps check``: whether a run folder is whole, and what can be done with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

MARKS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@dataclass(frozen=True)
class RunCheck:
    """Check every file of run folders against its checksums, the recipe and the data, and say whether a run can be
    resumed, evaluated and predicted with. Nothing is changed. The exit code is 1 if anything is wrong."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders."""

    def run(self) -> int:
        from torchcaps.lab.training.checking import check_run

        if not self.runs:
            raise ValueError("no run folder given; expected `torchcaps check runs/NAME`")
        wrong = 0
        for folder in self.runs:
            print(f"{folder}:")
            for finding in check_run(folder):
                wrong += finding.state == "wrong"
                print(f"  {MARKS[finding.state]} {finding.what}{f': {finding.said}' if finding.said else ''}")
                if finding.remedy:
                    print(f"        remedy: {finding.remedy}")
        return 1 if wrong else 0
