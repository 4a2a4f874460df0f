"""Numbers and tables in plain text, as people like to read them."""

from collections.abc import Sequence

from torchcaps.terminal import printable


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
