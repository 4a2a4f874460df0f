"""The quickstart with every routing: what each reaches on the sample's test digits, from the records."""

from reproduction.paths import RecordPaths
from torchcaps.lab.reports import read_records
from torchcaps.lab.reports.results import percent
from torchcaps.lab.reports.words import markdown_table
from torchcaps.lab.training.records import without_seed

COLUMNS = ("options", "parameters", "test accuracy, 95 % interval")


def quickstart_table(places: RecordPaths) -> str:
    """A line for each routing, the most accurate first. The scales ``paper`` and ``laptop`` are the same recipe."""
    rows = []
    for run in sorted(read_records(places.results / "quickstart"), key=lambda run: (-run.correct, run.overrides)):
        low, high = run.interval
        accuracy = f"{percent(run.value)} % ({percent(low)}–{percent(high)})"
        rows.append((f"`{' '.join(without_seed(run.overrides))}`", f"{run.parameters:,}", accuracy))
    return markdown_table(COLUMNS, rows)
