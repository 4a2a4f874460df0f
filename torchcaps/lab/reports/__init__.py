"""What people read after a run: its page, and the table of all results.

``run_report(run)`` writes ``report.html``; ``results_table(read_records(folder))`` is paper against ours.
"""

from torchcaps.lab.reports.records import RunRecord, parse_record, read_record, read_records, read_run_records
from torchcaps.lab.reports.results import experiments, fill, results_table
from torchcaps.lab.reports.run_report import run_report

__all__ = [
    "RunRecord",
    "experiments",
    "fill",
    "parse_record",
    "read_record",
    "read_records",
    "read_run_records",
    "results_table",
    "run_report",
]
