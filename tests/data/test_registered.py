"""Generated and rendered datasets by name: what they are made from, their labels, and the commands on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.written import png, put, random_bytes
from torchcaps import cli, data
from torchcaps.data import DataError
from torchcaps.data.catalog import DatasetEntry, Rendering, record_sums
from torchcaps.data.toys import Grid, find_toys, load_toys

FEW = Grid((4,), elevations=(0,), azimuths=(0, 9), lightings=(0,), size=16)
SIDE = {"multimnist": 36, "diverse_multimnist": 36, "translated_mnist": 40, "shifted_mnist": 28, "affine_mnist": 40}


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("name", data.RECIPES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_generated_dataset_from_the_sample(name, split):
    dataset = data.load(f"{name}:mnist_sample", split)
    assert len(dataset) == data.entry(f"{name}:mnist_sample").counts[split]
    assert dataset.name == f"{name}:mnist_sample (generated)"
    batch = dataset.batch(torch.tensor([0, len(dataset) - 1]))
    assert batch.image.shape == (2, 1, SIDE[name], SIDE[name])


@pytest.mark.parametrize("name", data.RECIPES)
def test_without_a_source_it_is_mnist(name, tmp_path, real):
    assert data.entry(name) in data.DATASETS.values()
    assert data.entry(name).needs == "mnist"
    assert data.entry(name).made == "generated"
    with pytest.raises(DataError, match=f"fetch mnist`.*`{name}:mnist_sample` is the same made from what ships"):
        data.load(name, "train", tmp_path)
    real("mnist")
    by_name, by_source = (data.load(each, "test").batch(torch.arange(9)) for each in (name, f"{name}:mnist"))
    assert torch.equal(by_name.image, by_source.image)


def test_generated_from_own_files(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "mine.npz", images=random_bytes(20, 28, 28), labels=np.arange(20) % 4)
    name = f"affine_mnist:arrays:{tmp_path / 'mine.npz'}"
    assert data.splits(name) == ("train", "test", "all")
    assert len(data.load(name, "all")) == 20
    out = run(capsys, "data", "check", name)[1]
    assert out.splitlines()[0] == "ok     all: 20 generated examples, 4 classes of 5 each"
    assert run(capsys, "data", "show", name)[1] == "affine_mnist-mine-all.png\n"
    for label in ("cat", "dog"):
        put(tmp_path / "own" / "train" / label / "1.png", png(random_bytes(28, 28)))
        put(tmp_path / "own" / "test" / label / "1.png", png(random_bytes(20, 20)))
    code, out, _ = run(capsys, "data", "check", f"multimnist:folder:{tmp_path / 'own'}")
    assert code == 0  # images of a folder are resized to 28×28
    assert out.splitlines()[0].startswith("ok     train: 2,000 generated examples, 2 classes")
    np.savez(tmp_path / "small.npz", images=random_bytes(20, 20, 20), labels=np.arange(20) % 4)
    code, out, _ = run(capsys, "data", "check", f"multimnist:arrays:{tmp_path / 'small.npz'}")
    assert code == 1
    assert "WRONG  all: multimnist is made from gray 28×28" in out
    assert "has 1 channel(s) of 20×20" in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("multimnist:toys", "multimnist is made from gray 28×28 images, not from 'toys'; multimnist:SOURCE takes the"),
        ("multimnist:", "not from ''; multimnist:SOURCE takes the sources mnist, mnist_sample, fashion_mnist, folder:"),
        ("multimnist:multimnist", "not from 'multimnist'"),
        ("mnist:mnist_sample", "no dataset 'mnist:mnist_sample'; there are mnist_sample, mnist"),
        ("multi", "such as multimnist:mnist_sample"),
        ("folder:", "'folder:' names no path; write folder:PATH"),
        ("shifted_mnist:arrays:", "'arrays:' names no path; write arrays:FILE.npz"),
    ],
)
def test_names_that_lead_nowhere(name, words):
    for asked in (lambda: data.load(name, "train"), lambda: data.splits(name)):
        with pytest.raises(DataError) as caught:
            asked()
        assert words in str(caught.value)


def test_commands_on_generated_datasets(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "diverse_multimnist:mnist_sample"
    code, out, _ = run(capsys, "data", "check", name)
    assert code == 0
    assert "train: 1,750,000 generated examples, 10 classes, " in out
    assert "(among 10,000)" in out
    assert run(capsys, "data", "show", name, "--count", "4")[1] == "diverse_multimnist-mnist_sample-train.png\n"
    assert "generated from mnist_sample" in run(capsys, "data", "fetch", name)[1]
    lines = {line.split()[0]: line for line in run(capsys, "data", "list", "--data-dir", str(tmp_path))[1].splitlines()}
    assert "generated, needs mnist" in lines["affine_mnist"]
    assert "to render, 896 MB" in lines["toys"]


@pytest.fixture
def few_toys(monkeypatch) -> None:
    """The registered toys, with ten pictures in each split instead of 24,300."""

    def load(split: str, root: Path, told=None):
        return load_toys(split, root, grid=FEW, progress=told)

    rendering = Rendering(lambda split, root: find_toys(split, root, FEW), load, 5120)
    entry = DatasetEntry("few toys", load, {"train": 10, "test": 10}, "free", rendering=rendering)
    monkeypatch.setitem(data.DATASETS, "toys", entry)


@pytest.mark.usefixtures("few_toys")
def test_commands_on_rendered_toys(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = ("--data-dir", str(tmp_path))
    _, out, err = run(capsys, "data", "show", "toys", *there)
    assert (out, err) == ("toys-train.png\n", "rendering toys/train, 10 pictures, once\n")
    _, out, err = run(capsys, "data", "fetch", "toys", *there)
    assert err == "rendering toys/test, 10 pictures, once\n"
    assert out.count("(rendered) is in") == 2
    code, out, err = run(capsys, "data", "check", "toys", *there)
    assert (code, err) == (0, "")
    assert out.count("ok     t") == 4
    assert "ok     train: 10 rendered examples, 5 classes of 2 each" in out
    lines = run(capsys, "data", "list", *there)[1].splitlines()
    assert any(line.startswith("toys ") and " rendered " in line for line in lines)
    file = find_toys("test", tmp_path, FEW)
    assert file is not None
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    code, out, _ = run(capsys, "data", "check", "toys", *there)
    assert code == 1
    assert f"WRONG  {file.name}: not SHA-256" in out
    file.write_bytes(file.read_bytes()[:500])
    code, out, _ = run(capsys, "data", "check", "toys", *there)
    assert code == 1
    assert "delete it, and the toys are rendered again" in out


def test_the_registered_toys_are_the_whole_programme(tmp_path):
    entry = data.entry("toys")
    assert entry.made == "rendered"
    assert entry.counts == {"train": 24_300, "test": 24_300}
    assert entry.rendering is not None
    assert entry.rendering.find("train", tmp_path) is None
    assert entry.rendering.size == 24_300 * 2 * 96 * 96


def test_sums_of_other_files_stay(tmp_path):
    for name in ("a", "b"):
        record_sums(tmp_path, [put(tmp_path / name, name.encode())])
    assert [line.split()[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()] == ["a", "b"]


def test_check_finds_broken_images_in_a_folder(capsys, tmp_path):
    whole = png(random_bytes(64, 64))
    put(tmp_path / "cat" / "1.png", whole)
    put(tmp_path / "cat" / "2.png", whole[: len(whole) // 2])  # its header is whole
    code, out, _ = run(capsys, "data", "check", f"folder:{tmp_path}")
    assert code == 1
    assert "2.png: not a whole image" in out
