"""``torchcaps evaluate``: how good runs are, one by one or as an ensemble, on their own test data or on any other."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from torchcaps.files import write_json
from torchcaps.lab.evaluation import Evaluation, ensemble, evaluate
from torchcaps.lab.evaluation.evaluation import Progress
from torchcaps.lab.evaluation.fitting import open_loader
from torchcaps.lab.evaluation.subjects import LoadedModel, Which, open_model, with_crops
from torchcaps.lab.reports.words import text_table
from torchcaps.terminal import printable

HEADER = (
    *("run", "data", "examples", "correct", "accuracy", "95 % interval", "balanced", "majority class"),
    *("loss", "calibration", "Brier"),
)
MOST_CLASSES = 20  # of which the table for each class is printed, and the confusion matrix
MOST_PAIRS = 8  # confusions that are named where there are more classes


@dataclass(frozen=True)
class Evaluate:
    """Evaluate runs: accuracy with its 95 % interval, recall and precision of each class, calibration."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """Run folders, checkpoints in them (RUN/checkpoints/step-….safetensors), model files, or pretrained
    models by name (`torchcaps models`)."""
    data: str = ""
    """Other data than the run's own: a name from `torchcaps data list`, folder:PATH or arrays:FILE.npz."""
    split: str = "test"
    """Which split: test, train, val (of the run's own), or what other data have."""
    crops: int | None = None
    """Crops over which predictions are averaged; as in the recipe if left out."""
    ensemble: bool = False
    """Also average the probabilities of all runs."""
    which: Which = "best"
    """The model of a run: the best on validation examples, or the last."""
    batch_size: int = 128
    """Examples at a time; the counts do not depend on it."""
    device: str = ""
    """cpu, cuda or cuda:1; a GPU if there is one if left out."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file as well, the confusion matrix too."""

    def run(self) -> int:
        if not self.runs:
            raise ValueError("name at least one run folder: torchcaps evaluate RUN")
        if self.ensemble and len(self.runs) == 1:
            raise ValueError(f"an ensemble has at least two members; got {self.runs[0]} alone")
        found = [self._evaluate(path) for path in self.runs]
        if self.ensemble:
            data = found[0][1]
            found.append((f"ensemble of {len(found)}", data, ensemble([each for *_, each in found])))
        rows = [_row(name, data, each) for name, data, each in found]
        print(text_table(rows, HEADER, right=range(2, len(HEADER))))
        self._print_more(found[-1][2], several=len(found) > 1)
        if self.json is not None:
            written = [{"run": name, "data": data, **each.to_json()} for name, data, each in found]
            write_json(self.json, written, indent=1)
            print(f"written to {self.json}")
        return 0

    def _evaluate(self, path: str) -> tuple[str, str, Evaluation]:
        subject = with_crops(open_model(path, self.which, self.device), self.crops)
        loader, data, remark = open_loader(subject, self.data, self.split)
        if remark:
            print(printable(f"{path}: {remark}"), file=sys.stderr)
        with bar(f"evaluating {path}") as progress:
            found = evaluate(
                subject.model, loader, subject.loss, batch_size=self.batch_size, step=subject.step, progress=progress
            )
        if not self.data and self.split == "test":
            _print_claim(subject)
        return path, data, found

    def _print_more(self, found: Evaluation, *, several: bool) -> None:
        if found.multi_label:
            print("accuracy is the share of exact matches: all classes of an example found, and no others")
        if several:
            return
        if len(found.classes) > MOST_CLASSES:
            print(f"({len(found.classes)} classes: --json FILE has each of them)")
            _print_pairs(found)
            return
        rows = [
            (one.name, f"{one.total:,}", f"{one.hit:,}", _share(one.recall), f"{one.said:,}", _share(one.precision))
            for one in found.per_class()
        ]
        print()
        print(text_table(rows, ("class", "examples", "found", "recall", "said", "precision"), right=range(1, 6)))
        _print_confusion(found)


def _print_confusion(found: Evaluation) -> None:
    """How many examples of each class (row) were taken for each (column); zeros are points."""
    counts = found.confusion()
    if counts is None:
        return
    rows = [
        (name, *(str(count) if count else "·" for count in row))
        for name, row in zip(found.classes, counts.tolist(), strict=True)
    ]
    print("\nconfusion matrix: rows are the true classes, columns what they were taken for")
    print(text_table(rows, ("", *found.classes), right=range(1, len(found.classes) + 1)))


def _print_pairs(found: Evaluation) -> None:
    """The commonest confusions, where a matrix would be too large to read."""
    rows = [(name, other, f"{count:,}") for name, other, count in found.list_confused(MOST_PAIRS)]
    if rows:
        print("\n" + text_table(rows, ("class", "taken for", "times"), right=(2,)))


def _row(name: str, data: str, found: Evaluation) -> tuple[str, ...]:
    low, high = found.interval
    return (
        name,
        data,
        f"{found.total:,}",
        f"{found.correct:,}",
        _share(found.accuracy),
        f"{100 * low:.2f}–{100 * high:.2f} %",
        _share(found.balanced_accuracy),
        _share(found.majority_share),
        f"{found.loss:.4f}",
        f"{found.calibration_error():.4f}",
        f"{found.brier():.4f}",
    )


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _print_claim(subject: LoadedModel) -> None:
    if subject.run is None:
        return
    recipe = subject.run.recipe
    figure = "no figure" if recipe.claim.target is None else f"{recipe.claim.target:g} % {recipe.claim.metric}"
    notes = ", ".join(part for part in (recipe.claim.table, recipe.claim.note) if part)
    print(f"{recipe.name}, the claim: {figure} ({notes})", file=sys.stderr)


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(title[-50:], total=None)
        yield lambda done, of: bars.update(task, completed=done, total=of)
