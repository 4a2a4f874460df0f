"""Write docs/results.md and its figures of the controlled comparison and of error against time from the records.

Usage: python reproduction/write_results_page.py [--check]
"""

import sys
from pathlib import Path

from reproduction import RecordPaths, results_page
from reproduction.comparison_figure import draw_comparison
from reproduction.page import COMPARISON_PICTURE
from reproduction.paper_size.page import DRAWN, PICTURE, draw_error_by_time, read_curves, write_section
from reproduction.paper_size.train_queue import RECORDS
from reproduction.studies import light_picture
from torchcaps.files import write_bytes, write_text
from torchcaps.lab.recipes import get

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
PLACES = RecordPaths(results=ROOT / "reproduction" / "records" / "runs", figures=ROOT / "docs" / "images" / "results")


def text() -> str:
    images = "images/results"
    return results_page(PLACES, images=images, first=write_section(RECORDS, PLACES, images))


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text()
        if stale:
            print("docs/results.md is not what the records say; run reproduction/write_results_page.py")
        return int(stale)
    write_text(PAGE, text())
    write_bytes(PLACES.figures / COMPARISON_PICTURE, light_picture(draw_comparison(PLACES)))
    if curves := read_curves(RECORDS, DRAWN):
        paper = get("sabour2017/mnist").claim.target
        assert paper is not None
        write_bytes(PLACES.figures / PICTURE, light_picture(draw_error_by_time(curves, paper)))
    print(f"{PAGE.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
