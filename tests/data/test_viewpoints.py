"""Familiar and novel viewpoints of smallNORB and of the toys: what is trained on is not what is tested on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.written import norb, put, write_smallnorb
from torchcaps import cli, data
from torchcaps.data import ArrayDataset, Batch, DataError, smallnorb
from torchcaps.data.toys import dataset as toys
from torchcaps.data.toys.dataset import Grid, load_toys
from torchcaps.data.viewpoints import SingleImages, choose_views, single_views

AXES = ("azimuth", "elevation")
SPLITS = ("train", "test", "familiar")
VALUES = {"azimuth": set(range(0, 36, 2)), "elevation": set(range(9))}
TRAINED_ON = {"azimuth": {0, 2, 4, 30, 32, 34}, "elevation": {0, 1, 2}}  # of the SR-CapsNet code


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    root = tmp_path_factory.mktemp("data")
    return root, write_smallnorb(root, size=8)


def everything(dataset: data.Dataset) -> Batch:
    return dataset.batch(torch.arange(len(dataset)))


@pytest.mark.parametrize("axis", AXES)
def test_splits_have_the_views_of_the_paper(axis: str, written):
    root, _ = written
    found = {split: everything(data.load(f"smallnorb_{axis}", split, root)).metadata for split in SPLITS}
    views = {split: set(metadata[axis].tolist()) for split, metadata in found.items()}
    assert views["train"] == views["familiar"] == TRAINED_ON[axis]
    assert views["test"] == VALUES[axis] - TRAINED_ON[axis]
    assert {split: set(metadata["instance"].tolist()) for split, metadata in found.items()} == {
        "train": {4},
        "test": {0},
        "familiar": {0},
    }
    (other,) = set(AXES) - {axis}
    assert all(set(metadata[other].tolist()) == VALUES[other] for metadata in found.values())


@pytest.mark.parametrize("axis", AXES)
def test_every_image_of_a_pair_is_an_example(axis: str, written):
    root, pictures = written
    pairs = everything(data.load("smallnorb", "test", root))
    keep = ~np.isin(pairs.metadata[axis].numpy(), list(TRAINED_ON[axis]))
    single = data.load(f"smallnorb_{axis}", "test", root)
    assert single.name == f"smallnorb_{axis}"
    found = everything(single)
    half = int(keep.sum())
    assert len(single) == 2 * half
    assert found.image.shape == (2 * half, 1, 8, 8)
    for eye, part in enumerate((slice(0, half), slice(half, None))):
        np.testing.assert_allclose(found.image[part, 0].numpy(), pictures["test"][keep, eye] / 255, rtol=1e-6)
        assert torch.equal(found.label[part], pairs.label[torch.from_numpy(keep)])
        assert found.metadata["eye"][part].unique().tolist() == [eye]
    mixed = single.batch(torch.tensor([half, 0, 2 * half - 1]))
    assert torch.equal(mixed.image, found.image[[half, 0, 2 * half - 1]])
    with pytest.raises(IndexError, match=f"there is no index {2 * half}"):
        single[2 * half]


@pytest.mark.parametrize("source", ["smallnorb", "toys"])
@pytest.mark.parametrize("axis", AXES)
def test_counts_are_thirds_of_all_images(source: str, axis: str, written):
    entry, whole = data.entry(f"{source}_{axis}"), data.entry(source)
    assert dict(entry.counts) == {"train": 16_200, "test": 32_400, "familiar": 16_200}
    assert entry.counts["test"] + entry.counts["familiar"] == 2 * whole.counts["test"]
    assert 3 * entry.counts["train"] == 2 * whole.counts["train"]
    assert entry.made == ("" if source == "smallnorb" else "generated")  # photographs stay photographs
    root, _ = written
    sizes = {split: len(data.load(f"smallnorb_{axis}", split, root)) for split in SPLITS}
    assert sizes == {split: count // 30 for split, count in entry.counts.items()}  # the files have 810 pairs of 24,300


def test_toys_have_the_same_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def few(split: str, root: str | Path) -> ArrayDataset:
        instances = {"train": (4,), "test": (0,)}[split]
        grid = Grid(instances, elevations=(0, 2, 3), azimuths=(0, 2, 3, 17), lightings=(0,), size=8)
        return load_toys(split, root, grid=grid)

    monkeypatch.setattr(toys, "load_toys", few)
    pairs = {split: everything(toys.load_novel(split, tmp_path)) for split in SPLITS}
    assert {split: set(found.metadata["azimuth"].tolist()) for split, found in pairs.items()} == {
        "train": {0, 4, 34},
        "test": {6},
        "familiar": {0, 4, 34},
    }
    single = single_views(few, "elevation", "toys_elevation (rendered)")
    assert set(everything(single("test", tmp_path)).metadata["elevation"].tolist()) == {3}
    assert len(single("train", tmp_path)) == 2 * 5 * 4 * 2
    assert single("train", tmp_path).classes == smallnorb.CLASSES


def test_a_split_without_examples_says_so(written):
    root, _ = written
    pairs = smallnorb.load("test", root)
    known = choose_views(pairs, "elevation", "familiar", "some")
    only = ArrayDataset("low", "test", pairs.classes, *everything(known)[:2], everything(known).metadata)
    with pytest.raises(DataError, match="some/test: none of the 270 examples of low has a novel elevation"):
        choose_views(only, "elevation", "test", "some")
    assert len(SingleImages(known)) == 540


def test_commands_read_the_files_of_smallnorb(written, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    root, _ = written
    assert cli.main(["data", "list", "--data-dir", str(root)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "on disk" in lines["smallnorb_azimuth"]
    sheet = tmp_path / "sheet.png"
    chosen = ["--split", "familiar", "--data-dir", str(root), "--out", str(sheet)]
    assert cli.main(["data", "show", "smallnorb_elevation", *chosen]) == 0
    assert sheet.is_file()
    put(tmp_path / "smallnorb" / f"{smallnorb.STEM['train']}-cat.mat", norb(np.zeros(1, np.int32)))
    with pytest.raises(DataError, match="torchcaps data fetch smallnorb"):
        data.load("smallnorb_azimuth", "familiar", tmp_path)
