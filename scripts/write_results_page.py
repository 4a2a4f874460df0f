"""Write docs/results.md from the records of the campaign.

Usage: python scripts/write_results_page.py [--check]
"""

import sys
from pathlib import Path

from torchcaps.campaign import Places, results_page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"


def text() -> str:
    return results_page(Places(results=ROOT / "results" / "runs"))


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text()
        if stale:
            print("docs/results.md is not what the records say; run scripts/write_results_page.py")
        return int(stale)
    PAGE.write_text(text(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
