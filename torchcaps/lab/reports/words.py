"""Numbers and tables in plain text, as people like to read them."""

from collections.abc import Sequence
from itertools import pairwise

from torchcaps.terminal import printable

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> [duration(seconds) for seconds in (8.24, 59.9, 200.0, 7_260.0, 2e5)]
    ['8.2 s', '60 s', '3 min 20 s', '2 h 1 min', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    for (unit, length), (below, part) in pairwise(UNITS):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit}" + (f" {rest} {below}" if rest else "")
    raise AssertionError("90 seconds are more than a minute")


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str], right: Sequence[int] = ()) -> str:
    """Columns under each other for a terminal or a log; the columns of these numbers keep to the right. Escapes in
    cells are shown, not sent to the terminal.

    >>> print(text_table([("a", "1"), ("bcd", "22")], ("name", "n"), right=(1,)))
    name   n
    a      1
    bcd   22
    """
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page of docs; a bar within a cell does not end it.

    >>> print(markdown_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
