import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.written import norb, png, put, random_bytes
from torchcaps import cli, data
from torchcaps.data import sheet, smallnorb


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_every_command_is_there():
    for name in cli.COMMANDS:
        assert callable(cli.find(name).run)


def test_list_names_every_dataset_and_what_to_do(capsys, tmp_path):
    code, out, _ = run(capsys, "data", "list", "--data-dir", str(tmp_path))
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(data.list()) | {"folder:PATH", "arrays:FILE.npz"} <= set(lines)
    assert "ready" in lines["mnist_sample"]
    assert "to fetch, 12 MB" in lines["mnist"]


def test_show_writes_a_sheet_with_one_panel_for_each_example(capsys, tmp_path):
    path = tmp_path / "deep" / "sheet.png"
    code, out, _ = run(capsys, "data", "show", "mnist_sample", "--count", "12", "--out", str(path))
    assert (code, out.strip()) == (0, str(path))
    with Image.open(path) as image:
        assert image.size == (10 * 92 + 8, 2 * 108 + 32)
    assert [item.name for item in path.parent.iterdir()] == ["sheet.png"]


def test_show_stereo_pairs_and_own_folders(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, values in (
        ("dat", random_bytes(3, 2, 96, 96)),
        ("cat", np.arange(3, dtype=np.int32)),
        ("info", np.zeros((3, 4), np.int32)),
    ):
        put(tmp_path / "smallnorb" / f"{smallnorb.STEM['train']}-{kind}.mat", norb(values))
    assert run(capsys, "data", "show", "smallnorb", "--data-dir", str(tmp_path))[1] == "smallnorb-train.png\n"
    with Image.open("smallnorb-train.png") as image:
        assert image.size == (3 * 200 + 8, 120 + 32)
    put(tmp_path / "own" / "cat" / "1.png", png(random_bytes(30, 30, 3)))
    assert run(capsys, "data", "show", f"folder:{tmp_path / 'own'}")[1] == "own-all.png\n"
    assert "1 classes of 1 each" in run(capsys, "data", "check", f"folder:{tmp_path / 'own'}")[1]


def test_show_prints_sentences(capsys, real):
    real("sst/trees")
    code, out, _ = run(capsys, "data", "show", "sst5", "--split", "dev", "--count", "3")
    assert code == 0
    assert out.splitlines()[0] == "     positive  It 's a lovely film with lovely performances by Buy and Accorsi ."
    assert len(out.splitlines()) == 3


def test_check_of_the_sample_and_of_published_files(capsys, real_data):
    assert "10 classes of 500 each" in run(capsys, "data", "check", "mnist_sample")[1]
    code, out, _ = run(capsys, "data", "check", "mnist", "--data-dir", str(real_data))
    assert code == 0
    assert "ok     train-images-idx3-ubyte.gz" in out
    assert "5,421 (5) to 6,742 (1) each" in out


def test_check_says_what_is_wrong(capsys, tmp_path):
    put(tmp_path / "sst" / "trees" / "dev.txt", b"(2 short)")
    code, out, _ = run(capsys, "data", "check", "sst2", "--data-dir", str(tmp_path))
    assert code == 1
    assert "WRONG  trees/dev.txt: not SHA-256 0e9336ae" in out
    assert "WRONG  train: sst5/train: no trees/train.txt" in out
    assert out.endswith("sst2: not as it should be\n")


def test_optional_splits_may_be_absent(capsys, tmp_path):
    out = run(capsys, "data", "check", "svhn", "--data-dir", str(tmp_path))[1]
    assert "extra: not on disk, and not needed" in out


def test_fetch_of_what_needs_none(capsys, tmp_path):
    assert "nothing to fetch" in run(capsys, "data", "fetch", "mnist_sample")[1]


class Pairs(data.Dataset):
    """A generated dataset: many examples, two labels each, no arrays."""

    name, split, classes = "pairs", "train", ("a", "b", "c")

    def __len__(self) -> int:
        return 60_000_000

    def batch(self, indices):
        assert 0 <= indices.min() <= indices.max() < len(self)
        label = torch.tensor([[1.0, 0.0, 1.0]]).repeat(len(indices), 1)
        return data.Batch(torch.zeros(len(indices), 1, 8, 8), label, {})


def test_generated_datasets(capsys, tmp_path, monkeypatch):
    entry = data.DatasetEntry("pairs", lambda split, root: Pairs(), {"train": 60_000_000}, "free", needs="mnist")
    monkeypatch.setitem(data.DATASETS, "pairs", entry)
    there = ("--data-dir", str(tmp_path))
    lines = run(capsys, "data", "list", *there)[1].splitlines()
    assert any(line.startswith("pairs ") and "needs mnist" in line for line in lines)
    assert "3 classes, 0 (b) to 10,000 (a) each (among 10,000)" in run(capsys, "data", "check", "pairs", *there)[1]
    assert run(capsys, "data", "show", "pairs", "--out", str(tmp_path / "x.png"), *there)[0] == 0
    monkeypatch.setitem(data.DATASETS, "pairs", replace(entry, needs="mnist_sample"))
    assert run(capsys, "data", "fetch", "pairs", *there)[1].splitlines() == [
        "pairs is generated from mnist_sample",
        "mnist_sample needs no files: nothing to fetch",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("data", "fetch", "nothing"), "no dataset 'nothing'; there are mnist_sample, mnist"),
        (("data", "show", "mnist", "--split", "middle"), "mnist has no split 'middle'; it has train, test"),
        (("data", "show", "mnist_sample", "--count", "0"), "--count 0: a sheet has 1 to 2,000 examples"),
        (("data", "show", "arrays:/none.npz"), "no such file"),
        (("data", "show", "mnist_sample", "--out", "/proc/none/x.png"), "name another file with --out"),
        (("sing",), "no command 'sing'; there are: train"),
    ],
)
def test_errors_are_short_and_say_what_is_right(capsys, arguments, words):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("torchcaps: ")
    assert err.count("\n") <= 2
    assert "Traceback" not in err


def test_debug_shows_where_an_error_comes_from():
    with pytest.raises(data.DataError, match="no dataset"):
        cli.main(["data", "check", "nothing", "--debug"])


def test_the_command_without_a_terminal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "torchcaps", "data", "check", "nothing"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("torchcaps: no dataset 'nothing'")


def test_usage(capsys):
    assert run(capsys, "--help")[0] == 0
    assert run(capsys)[0] == 2


def test_captions_and_panels():
    assert sheet.caption(torch.tensor(2), "abc") == "c"
    assert sheet.caption(torch.zeros(3), "abc") == "none"
    assert sheet.panel(torch.zeros(1, 28, 28)).shape == (84, 84, 3)
    assert sheet.panel(torch.zeros(2, 96, 96)).shape == (96, 192, 3)
    with pytest.raises(data.DataError, match="4 channels"):
        sheet.panel(torch.zeros(4, 8, 8))


def test_the_default_directory(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", "~/some")
    assert data.data_dir() == Path("~/some").expanduser()
    assert data.data_dir("/given") == Path("/given")
    monkeypatch.delenv("TORCHCAPS_DATA")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
        assert data.data_dir() == Path("/caches/torchcaps")
