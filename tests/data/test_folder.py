import numpy as np
import pytest
import torch
from written import png, put, random_bytes

from torchcaps import data
from torchcaps.data import DataError


def test_splits_classes_and_pixels(tmp_path):
    for split in ("train", "test"):
        for seed, name in enumerate(("dog/b.png", "dog/a.png", "cat/x.PNG")):
            put(tmp_path / split / name, png(random_bytes(5, 7, 3, seed=seed)))
    put(tmp_path / "train" / "cat" / "notes.txt", b"not an image")
    dataset = data.load(f"folder:{tmp_path}", "train")
    assert dataset.classes == ("cat", "dog")
    batch = dataset.batch(torch.tensor([2, 0, 1]))
    assert batch.label.tolist() == [1, 0, 1]
    np.testing.assert_allclose(batch.image[0].permute(1, 2, 0).numpy(), random_bytes(5, 7, 3, seed=0) / 255, rtol=1e-6)
    assert len(data.load(f"folder:{tmp_path}", "test")) == 3
    with pytest.raises(DataError, match="has no split 'all', only train, test"):
        data.load(f"folder:{tmp_path}", "all")


def test_grey_stays_grey_and_one_colour_image_makes_all_colour(tmp_path):
    put(tmp_path / "a" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "a" / "2.png", png((random_bytes(4, 4).astype(np.uint16) << 8) | 7))
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert dataset[0].image.shape == (1, 4, 4)
    torch.testing.assert_close(dataset[1].image, dataset[0].image)
    put(tmp_path / "b" / "3.jpg", png(random_bytes(4, 4, 3), "JPEG"))
    assert data.load(f"folder:{tmp_path}", "all")[0].image.shape == (3, 4, 4)


def test_what_cannot_be_a_dataset(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        data.load(f"folder:{tmp_path}/none", "all")
    with pytest.raises(DataError, match="no class folders"):
        data.load(f"folder:{tmp_path}", "all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no images; .*\.png"):
        data.load(f"folder:{tmp_path}", "all")
    put(tmp_path / "empty" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "full" / "2.png", png(random_bytes(4, 5)))
    with pytest.raises(DataError, match=r"2\.png: 5×4 pixels, but 1\.png has 4×4; bring all"):
        data.load(f"folder:{tmp_path}", "all")
    put(tmp_path / "full" / "2.png", b"<svg>")
    with pytest.raises(DataError, match=r"2\.png: not a whole image"):
        data.load(f"folder:{tmp_path}", "all")
    with pytest.raises(DataError, match="has no split 'train', only all"):
        data.load(f"folder:{tmp_path}", "train")


def test_images_that_break_later_are_named(tmp_path):
    path = put(tmp_path / "a" / "1.png", png(random_bytes(40, 40)))
    dataset = data.load(f"folder:{tmp_path}", "all")
    put(path, path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"1\.png: not a whole image"):
        dataset.batch(torch.tensor([0]))
    put(path, png(random_bytes(41, 40)))
    with pytest.raises(DataError, match="it has changed since it was listed"):
        dataset.batch(torch.tensor([0]))


def test_huge_images_are_refused_by_their_header(tmp_path):
    huge = bytearray(png(random_bytes(4, 4)))
    huge[16:24] = (60_000).to_bytes(4, "big") * 2
    put(tmp_path / "a" / "1.png", bytes(huge))
    with pytest.raises(DataError, match=r"60000×60000|not a whole image"):
        data.load(f"folder:{tmp_path}", "all")


def test_hidden_files_are_no_images_and_hidden_folders_no_classes(tmp_path):
    put(tmp_path / "a" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "a" / "._1.png", b"what some systems leave beside a file")
    put(tmp_path / ".thumbnails" / "1.png", b"")
    put(tmp_path / "readme.txt", b"")
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert (len(dataset), dataset.classes) == (1, ("a",))


def test_a_label_means_the_same_class_in_every_split(tmp_path):
    for name in ("train/ant", "train/bee", "train/cow", "test/bee", "test/cow", "test/dog"):
        put(tmp_path / name / "1.png", png(random_bytes(4, 4)))
    train, test = (data.load(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("ant", "bee", "cow", "dog")
    assert test.batch(torch.arange(3)).label.tolist() == [1, 2, 3]
