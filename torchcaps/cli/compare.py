"""``torchcaps compare``: runs side by side in one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Compare:
    """Put runs side by side in one HTML page: accuracy with paired tests, differences of the recipes, learning curves,
    size, speed, memory, robustness and calibration."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """Run folders, checkpoints in them, model files, or pretrained models by name (`torchcaps models`)."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("compare.html")
    """The page to write."""
    data: str = ""
    """Other data than each run's own: a name from `torchcaps data list`, folder:PATH or arrays:FILE.npz."""
    split: str = "test"
    """Which split of the data."""
    limit: int | None = None
    """Examples to count accuracy on, evenly over the split; all if left out."""
    robust_limit: int = 300
    """Examples for each distortion."""

    def run(self) -> int:
        if not self.runs:
            raise ValueError("name the runs to compare: torchcaps compare RUN RUN…")
        if min(self.robust_limit, 1 if self.limit is None else self.limit) < 1:
            raise ValueError("limits are at least one example")
        from torchcaps.lab.evaluation.fitting import open_loader
        from torchcaps.lab.evaluation.subjects import open_model
        from torchcaps.lab.explanation.comparison import measure_all
        from torchcaps.lab.reports.comparison_page import HEADER, Compared, comparison_page, row_of
        from torchcaps.lab.reports.page import write
        from torchcaps.lab.reports.words import text_table

        compared: list[Compared] = []
        for path, name in zip(self.runs, names_of(self.runs), strict=True):
            found = open_model(path)
            loader, data, remark = open_loader(found, self.data, self.split)
            if remark:
                print(remark)
            standing, distorted = measure_all(
                found.model, loader, found.loss, name=name, data=data, limit=self.limit, robust_limit=self.robust_limit
            )
            compared.append(Compared(standing, distorted, found.run))
        print(text_table([row_of(each.standing) for each in compared], HEADER, right=range(1, len(HEADER))))
        print(f"open {write(self.out, comparison_page(compared))}")
        return 0


def names_of(paths: Sequence[str]) -> list[str]:
    """The runs' folders as names; whole paths where those would be the same."""
    short = [Path(path).resolve().name.removesuffix(".safetensors") for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
