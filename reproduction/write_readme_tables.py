"""Put the tables that are made from the records between their marks in README.md and the pages of docs: all runs
(``results``), what became of the papers' claims (``claims``), all routings compared (``comparison``), the networks for
digits (``digits``), the quickstart with every routing (``quickstart``), the trained models that ship (``pretrained``),
and the search for settings on toys (``em-search`` and ``cnn-search``).

Usage: python reproduction/write_readme_tables.py [--check]
"""

import sys
from pathlib import Path

from reproduction import RecordPaths, claims_table, comparison_table
from reproduction.paper_size.page import digits_table
from reproduction.paper_size.train_queue import RECORDS as PAPER_SIZE
from reproduction.quickstart import quickstart_table
from reproduction.search_toys import search_table
from reproduction.ship_model import pretrained_table
from torchcaps.files import write_text
from torchcaps.lab.reports import fill, read_records, results_table

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "reproduction" / "records" / "runs"


def pages() -> dict[Path, str]:
    """Every page as it should be."""
    places = RecordPaths(results=RECORDS)
    tables = {
        "results": results_table(read_records(RECORDS) if RECORDS.is_dir() else []),
        "claims": claims_table(places),
        "comparison": comparison_table(places),
        "digits": digits_table(PAPER_SIZE, places),
        "quickstart": quickstart_table(places),
        "pretrained": pretrained_table(),
        "em-search": search_table("EM"),
        "cnn-search": search_table("CNN beside EM"),
    }
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        found[path] = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            found[path] = fill(found[path], table, name)
    return found


def stale() -> list[Path]:
    """Pages that do not say what the records say."""
    return [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]


def main() -> int:
    if "--check" in sys.argv[1:]:
        for path in stale():
            print(f"{path.relative_to(ROOT)} is not what the records say; run reproduction/write_readme_tables.py")
        return 1 if stale() else 0
    for path in stale():
        write_text(path, pages()[path])
        print(f"{path.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
