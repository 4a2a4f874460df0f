"""A user's own texts: a .csv or .tsv with a header, or .jsonl, with a column of texts and one of labels."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from torchcaps.data.base import DataError
from torchcaps.data.labels import class_name, order_names
from torchcaps.data.text import TABLE_SUFFIXES as SUFFIXES
from torchcaps.data.text import TextDataset

LIMIT = 4 << 30
LONGEST = (1 << 31) - 1  # letters of one field; csv's own limit is 131,072
MOST_CLASSES = 1000


def is_table(name: str) -> bool:
    """Whether a name of a dataset is a file of texts.

    >>> is_table("reviews.csv"), is_table("sst5")
    (True, False)
    """
    return name.lower().endswith(SUFFIXES)


def read_table(path: Path, text_column: str, label_column: str, classes: tuple[str, ...] = ()) -> TextDataset:
    """The texts of a file and their labels. Class names are the labels in order; those of another file if given."""
    texts: list[str] = []
    labels: list[str] = []
    for number, (text, label) in _pairs(path, text_column, label_column):
        if not text.strip():
            raise DataError(f"{path}: row {number} has an empty text in {text_column!r}; fill it in or remove the row")
        if not label.strip():
            raise DataError(f"{path}: row {number} has no label in {label_column!r}; fill it in or remove the row")
        texts.append(" ".join(text.split()))
        labels.append(class_name(label))
    if not texts:
        raise DataError(f"{path}: has no rows under its header; expected a text and a label in each")
    known = classes or _classes(path, labels, label_column)
    strange = sorted(set(labels) - set(known))
    if strange:
        raise DataError(f"{path}: label {strange[0]!r} is not among those trained on: {', '.join(map(repr, known))}")
    numbers = {name: number for number, name in enumerate(known)}
    return TextDataset(str(path), "all", known, texts, torch.tensor([numbers[label] for label in labels]))


def _classes(path: Path, labels: list[str], column: str) -> tuple[str, ...]:
    found = set(labels)
    if len(found) == 1:
        raise DataError(
            f"{path}: every row has the label {labels[0]!r} in {column!r}; there is nothing to tell apart, give rows "
            "of at least two classes"
        )
    if len(found) > MOST_CLASSES:
        raise DataError(
            f"{path}: {len(found):,} different labels in {column!r}, such as {labels[0]!r}; at most {MOST_CLASSES:,} "
            "are taken for classes; is it the right column? (--text.label-column)"
        )
    return order_names(found, str(path))


def _pairs(path: Path, text_column: str, label_column: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """Row numbers as an editor shows them, with text and label."""
    content = _content(path)
    if path.suffix.lower() == ".jsonl":
        yield from _json_pairs(path, content, text_column, label_column)
        return
    reader = csv.DictReader(
        io.StringIO(content, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
    )
    before = csv.field_size_limit(LONGEST)
    try:
        header = reader.fieldnames or []
        for column, option in ((text_column, "text"), (label_column, "label")):
            if column not in header:
                found = ", ".join(map(repr, header)) or "nothing"
                raise DataError(f"{path}: no column {column!r}; its header has {found}; name one: --{option}-column")
        for row in reader:
            yield reader.line_num, (row[text_column] or "", row[label_column] or "")
    except csv.Error as error:
        raise DataError(
            f"{path}: row {reader.line_num} is not as a .csv has it ({error}); are quotes closed?"
        ) from error
    finally:
        csv.field_size_limit(before)


def _json_pairs(path: Path, content: str, text_column: str, label_column: str) -> Iterator[tuple[int, tuple[str, str]]]:
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number} is not JSON ({error})") from error
        for column, option in ((text_column, "text"), (label_column, "label")):
            if not isinstance(row, dict) or column not in row:
                found = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                raise DataError(f"{path}: line {number} has no {column!r}, only {found}; name one: --{option}-column")
        if not isinstance(row[text_column], str):
            raise DataError(f"{path}: line {number} has {row[text_column]!r} in {text_column!r}; expected a string")
        label = row[label_column]
        missing = label is None or label != label  # NaN differs from itself
        yield number, (row[text_column], "" if missing else str(label))


def _content(path: Path) -> str:
    if path.is_dir():
        raise DataError(f"{path}: is a folder; give a {', '.join(SUFFIXES)} in it")
    if not path.is_file():
        raise DataError(f"{path}: no such file; give a {', '.join(SUFFIXES)} with a column of texts and one of labels")
    if path.stat().st_size > LIMIT:
        raise DataError(f"{path}: has {path.stat().st_size / 1e9:.1f} GB; at most {LIMIT / 1e9:.1f} are read")
    raw = path.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8: iconv -f UTF-16 -t UTF-8 {path.name} > utf8.csv")
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}: line {line} is not UTF-8 (byte 0x{raw[error.start]:02x}); save it as UTF-8: "
            f"iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8.csv, or whatever it was written in"
        ) from error
    if "\0" in content:
        raise DataError(
            f"{path}: line {content[: content.index(chr(0))].count(chr(10)) + 1} has a zero byte; it is no text"
        )
    return content
