"""Write the table of datasets into docs/data.md, from what the library knows of them.

Usage: python scripts/write_data_table.py
"""

from pathlib import Path

from torchcaps import data
from torchcaps.files import write_text

PAGE = Path(__file__).parent.parent / "docs" / "data.md"
START, END = "<!-- datasets: written by scripts/write_data_table.py -->", "<!-- end of datasets -->"


def table() -> str:
    lines = ["| name | what | splits | download | terms |", "|---|---|---|---|---|"]
    for name, entry in data.DATASETS.items():
        splits = ", ".join(f"{split} {count:,}" for split, count in entry.counts.items())
        lines.append(f"| `{name}` | {entry.about} | {splits} | {download(entry)} | {entry.terms} |")
    return "\n".join(lines)


def download(entry: data.DatasetEntry) -> str:
    if entry.needs:
        return f"none: generated from `{entry.needs}`"
    if entry.rendering is not None:
        return f"none: rendered, {entry.rendering.size * len(entry.splits) / 1e6:,.0f} MB on disk"
    if entry.source is None:
        return "none"
    size = sum(file.size or 0 for file in entry.source.wanted()) / 1e6
    return f"{size:,.0f} MB" if size else "yes"


def written(page: str) -> str:
    """The page with its table replaced by the present one."""
    before, rest = page.split(START)
    return f"{before}{START}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    write_text(PAGE, written(PAGE.read_text(encoding="utf-8")))
