"""Put the table of results, made from results/runs, between its marks in README.md and the pages of docs.

Usage: python scripts/write_results.py [--check]
"""

import sys
from pathlib import Path

from torchcaps.report import filled, read_records, results_table

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "runs"


def pages() -> dict[Path, str]:
    """Every page as it should be."""
    table = results_table(read_records(RECORDS) if RECORDS.is_dir() else [])
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path: filled(path.read_text(encoding="utf-8"), table) for path in texts}


def stale() -> list[Path]:
    """Pages that do not say what the records say."""
    return [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]


def main() -> int:
    if "--check" in sys.argv[1:]:
        for path in stale():
            print(f"{path.relative_to(ROOT)} is not what the records say; run scripts/write_results.py")
        return 1 if stale() else 0
    for path in stale():
        path.write_text(pages()[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
