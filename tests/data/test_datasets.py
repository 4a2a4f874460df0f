"""What holds for every dataset by name, and the sample that ships."""

import subprocess
import sys
from importlib import resources

import pytest
import torch

from torchcaps import data
from torchcaps.data import files, sample

DIGITS = 64  # of a SHA-256


def test_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-photos").mkdir()
    assert data.list()[0] == "mnist_sample"
    with pytest.raises(data.DataError, match=r"no dataset 'my-photos'; for your own images write folder:my-photos"):
        data.load("my-photos", "train")
    with pytest.raises(data.DataError, match=r"no dataset 'my\.npz'; for your own arrays write arrays:my\.npz"):
        data.load("my.npz", "train")
    with pytest.raises(data.DataError, match="no dataset 'mnits'; there are mnist_sample"):
        data.load("mnits", "train")


@pytest.mark.parametrize("name", data.list())
def test_what_is_known_of_a_dataset(name, tmp_path):
    entry = data.entry(name)
    assert entry.about
    assert entry.terms
    assert "train" in entry.splits
    assert all(count > 0 for count in entry.counts.values())
    with pytest.raises(data.DataError, match=f"{name} has no split 'none'; it has train"):
        data.load(name, "none", tmp_path)
    if entry.source is None:
        return
    for file in entry.source.files:
        assert file.urls
        assert file.sha256 is not None or file.inspect is not None
        assert bool(file.yields) == bool(file.unpacked_limit)
    assert all(len(digest) == DIGITS for digest in entry.source.sums.values())
    for split in entry.splits:
        with pytest.raises(data.DataError, match="torchcaps data fetch"):
            data.load(name, split, tmp_path)


def test_the_sample():
    assert sample.FILE.stat().st_size < 2_000_000
    for split, count in (("train", 500), ("test", 100)):
        dataset = data.load("mnist_sample", split)
        labels = dataset.batch(torch.arange(len(dataset))).label
        assert labels.bincount().tolist() == [count] * 10
        index = dataset.batch(torch.arange(len(dataset))).metadata["index"]
        assert (index[1:] > index[:-1]).all()
    text = (resources.files("torchcaps.data.sample") / "README.md").read_text()
    assert "Attribution-ShareAlike 3.0" in text


def test_the_sample_is_from_the_official_files(real):
    real("mnist")
    for split in ("train", "test"):
        small, whole = data.load("mnist_sample", split), data.load("mnist", split)
        chosen = small.batch(torch.arange(len(small)))
        official = whole.batch(chosen.metadata["index"])
        assert (chosen.image == official.image).all()
        assert (chosen.label == official.label).all()


def test_a_changed_sample_is_noticed(tmp_path, monkeypatch):
    spoilt = bytearray(sample.FILE.read_bytes())
    spoilt[5000] ^= 1
    (tmp_path / "x.npz").write_bytes(spoilt)
    monkeypatch.setattr(sample, "FILE", tmp_path / "x.npz")
    with pytest.raises(data.DataError, match="install torchcaps again"):
        data.load("mnist_sample", "train")


def test_examples_by_number():
    dataset = data.load("mnist_sample", "test")
    assert (dataset[-1].image == dataset[999].image).all()
    with pytest.raises(IndexError, match="mnist_sample/test has 1000 examples; there is no index 1000"):
        dataset[1000]


def test_a_missing_optional_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(data.DataError, match=r"this needs requests, .* run: pip install 'torchcaps\[lab\]'"):
        files.need("requests", "requests")


def test_optional_packages_are_not_imported_until_needed():
    code = (
        "import sys, torchcaps.data as d; d.load('mnist_sample', 'test'); print({'PIL', 'requests'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
