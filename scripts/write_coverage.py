"""Write into CONTRIBUTING.md what the tests reach of the package, from the measurement that `make coverage` leaves.

Usage: make coverage && python scripts/write_coverage.py
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchcaps.files import read_json, write_text

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- coverage: written by scripts/write_coverage.py -->", "<!-- end of coverage -->"
LISTED = 90.0  # percent: files below this are listed
PARTS = {"command line": "torchcaps/cli/", "laboratory": "torchcaps/lab/", "library": "torchcaps/"}
WHY = {
    "torchcaps/cli/demo.py": "opens a browser; page and server are tested without the command",
    "torchcaps/cli/evaluate.py": "lines for runs of texts, ensembles and many classes at once",
    "torchcaps/cli/models.py": "runs as a program of its own",
    "torchcaps/export/reading.py": "faults of files that onnxruntime refuses before we do",
    "torchcaps/export/runtime.py": "a missing package, files over 2 GB",
    "torchcaps/extras.py": "missing packages, tried in environments of their own",
    "torchcaps/kernels/build.py": "the compiler runs before the tests do",
    "torchcaps/lab/__init__.py": "missing packages, tried in environments of their own",
    "torchcaps/lab/demo/runtime.py": "fetches from npm",
    "torchcaps/lab/evaluation/fitting.py": "texts, which need a language model",
    "torchcaps/lab/explanation/gallery.py": "viewpoints and overlaps, tested one by one and not as a page",
    "torchcaps/lab/explanation/worked_example.py": "runs as a program of its own",
    "torchcaps/lab/reports/sections.py": "sections on texts and on many classes",
    "torchcaps/lab/training/checking.py": "races and faults of file systems, tried in processes of their own",
    "torchcaps/lab/training/distributed.py": "runs in processes of its own, and partly on GPUs",
    "torchcaps/lab/training/ownership.py": "races and faults of file systems, tried in processes of their own",
    "torchcaps/lab/training/stopping.py": "signals, tried in processes of their own",
    "torchcaps/lab/training/training.py": "settings for GPUs and several processes",
    "torchcaps/terminal.py": "needs a terminal",
    "torchcaps/votes/pairs.py": "one way to build blocks, which no routing takes",
}


def measure() -> dict[str, Any]:
    """What coverage.py measured, as its JSON report has it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)], cwd=ROOT, check=True)
        return read_json(report)


def describe(report: Mapping[str, Any], commit: str) -> str:
    """The total, the parts of the package, and the files of which much is missed."""
    total = _percent([report["totals"]])
    lines = [
        f"At commit {commit}, the tests reach {total:.1f} % of the lines and branches of the package:",
        "",
        "| part | lines | reached |",
        "|---|---|---|",
    ]
    left = {
        path: file["summary"] for path, file in sorted(report["files"].items()) if file["summary"]["num_statements"]
    }
    low = [(path, _percent([summary])) for path, summary in left.items() if _percent([summary]) < LISTED]
    for part, folder in PARTS.items():
        there = [left.pop(path) for path in list(left) if path.startswith(folder)]
        if there:
            lines.append(f"| {part} | {sum(each['num_statements'] for each in there):,} | {_percent(there):.1f} % |")
    if low:
        lines += [
            "",
            f"Files of which less than {LISTED:.0f} % is reached:",
            "",
            "| file | reached | why |",
            "|---|---|---|",
        ]
        lines += [f"| `{path}` | {percent:.0f} % | {WHY.get(path, '')} |" for path, percent in low]
    return "\n".join(lines)


def _percent(summaries: list[Mapping[str, int]]) -> float:
    reached = sum(each["covered_lines"] + each["covered_branches"] for each in summaries)
    return 100 * reached / max(1, sum(each["num_statements"] + each["num_branches"] for each in summaries))


def written(page: str, text: str) -> str:
    """The page with its measurement replaced."""
    before, rest = page.split(START)
    return f"{before}{START}\n{text}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    write_text(PAGE, written(PAGE.read_text(encoding="utf-8"), describe(measure(), commit.stdout.strip())))
