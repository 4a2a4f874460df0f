"""Files of one's own: what is right is read, what is wrong is said."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.data import DataError
from torchcaps.lab.text import read_table


def written(folder: Path, content: str | bytes, name: str = "my.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("my.csv", 'text,label\n"good, really\n good",yes\nbad,no\n'),
        ("my.csv", '\ufefftext,label\r\n"good, really  good",yes\r\nbad,no\r\n'),
        ("my.tsv", "label\ttext\nyes\tgood, really good\nno\tbad\n"),
        ("my.jsonl", '{"text": "good, really good", "label": "yes"}\n\n{"text": "bad", "label": "no"}\n'),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str) -> None:
    found = read_table(written(tmp_path, content, name), "text", "label")
    assert found.sentences == ["good, really good", "bad"]
    assert found.classes == ("no", "yes")
    assert found.labels.tolist() == [1, 0]


def test_numbers_are_in_their_order(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + "".join(f"word,{number}\n" for number in (10, 9, 1)))
    assert read_table(path, "text", "label").classes == ("1", "9", "10")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("review,label\nx,y\n", r"no column 'text'; its header has 'review', 'label'; name one: --text-column"),
        ("text,stars\nx,y\n", r"no column 'label'; .* --label-column"),
        ("text,label\n", "has no rows under its header"),
        ("", "its header has nothing"),
        ("text,label\ngood,1\n ,2\n", "row 3 has an empty text in 'text'"),
        ("text,label\ngood,1\nbad,\n", "row 3 has no label in 'label'"),
        ("text,label\ngood\nbad,1\n", "row 2 has no label"),
        ("text,label\ngood,1\nfine,1\n", "every row has the label '1' in 'label'; there is nothing to tell apart"),
        ('text,label\n"good,1\nfine,2\n', "are quotes closed"),
        (
            "text,label\nna\xefve,1\nx,2\n".encode("latin-1"),
            r"line 2 is not UTF-8 \(byte 0xef\); save it as UTF-8: iconv",
        ),
        ("text,label\nx,1\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("text,label\nx\0,1\ny,2\n", "line 2 has a zero byte"),
        ("text,label\n" + "".join(f"word,{number}\n" for number in range(1001)), "1,001 different labels"),
        ("text,label\na,1\nb,1.0\n", "labels '1' and '1.0' are one number in two spellings; write it in one way"),
        ("text,label\na,01\nb,1\nc,2\n", "labels '01' and '1' are one number"),
        ("text,label\na,1\nb,nan\n", "label 'nan' among numbers"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path, content), "text", "label")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 has no 'text', only list"),
        ('{"text": 3, "label": "a"}', "line 1 has 3 in 'text'; expected a string"),
        ('{"text": "x", "label": null}', "row 1 has no label"),
        ('{"text": "x", "label": NaN}', "row 1 has no label"),
    ],
)
def test_what_is_wrong_with_json(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path, content, "my.jsonl"), "text", "label")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file; give a \.csv"):
        read_table(tmp_path / "none.csv", "text", "label")
    with pytest.raises(DataError, match=r"is a folder; give a \.csv"):
        read_table(tmp_path, "text", "label")


def test_texts_of_any_length(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    found = read_table(written(tmp_path, f"text,label\n{'word ' * 100_000},a\nshort,b\n"), "text", "label")
    assert len(found.sentences[0]) == 499_999
    assert csv.field_size_limit() == before


def test_the_order_of_classes_depends_on_the_labels_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + "".join(f"t,{label}\n" for label in ("nan", "1.0", "01", "1", "b", "x")))
    code = "import sys; from torchcaps.lab.text.tables import read_table; from pathlib import Path; "
    code += "print(read_table(Path(sys.argv[1]), 'text', 'label').classes)"
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert said == {"('01', '1', '1.0', 'b', 'nan', 'x')\n"}


def test_labels_are_harmless(tmp_path: Path) -> None:
    found = read_table(written(tmp_path, "text,label\na,x\x1b[2J\nb,cafe\u0301\nc,caf\u00e9\n"), "text", "label")
    assert found.classes == ("caf\u00e9", "x\\x1b[2J")


def test_labels_of_another_file_must_be_known(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\ngood,yes\nbad,perhaps\n")
    with pytest.raises(DataError, match="label 'perhaps' is not among those trained on: 'no', 'yes'"):
        read_table(path, "text", "label", ("no", "yes"))


def test_lines_that_are_nested_too_deeply_are_named(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"deep\.jsonl: line 1 is not JSON"):
        read_table(path, "text", "label")
