import numpy as np
import pytest
import torch

from tests.data.written import png, put, random_bytes
from torchcaps import data
from torchcaps.data import DataError
from torchcaps.data.folder import FolderDataset


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


def test_gray_stays_gray_and_one_color_image_makes_all_color(tmp_path):
    put(tmp_path / "a" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "a" / "2.png", png(random_bytes(4, 4).astype(np.uint16) * 257))
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert dataset[0].image.shape == (1, 4, 4)
    torch.testing.assert_close(dataset[1].image, dataset[0].image)
    put(tmp_path / "b" / "3.jpg", png(random_bytes(4, 4, 3), "JPEG"))
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert dataset[0].image.shape == (3, 4, 4)
    assert "gray and color images: all are read as color" in dataset.notes


def test_what_cannot_be_a_dataset(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        data.load(f"folder:{tmp_path}/none", "all")
    with pytest.raises(DataError, match="no class folders"):
        data.load(f"folder:{tmp_path}", "all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no images; .*\.png"):
        data.load(f"folder:{tmp_path}", "all")
    put(tmp_path / "empty" / "1.png", b"<svg>")
    with pytest.raises(DataError, match=r"1\.png: not an image that can be read"):
        data.load(f"folder:{tmp_path}", "all")
    path = put(tmp_path / "empty" / "1.png", png(random_bytes(4, 4)))
    with pytest.raises(DataError, match="is a file; `folder:PATH` wants a folder"):
        data.load(f"folder:{path}", "all")
    with pytest.raises(DataError, match="has no split 'validation', only train, test, all"):
        data.load(f"folder:{tmp_path}", "validation")


def test_images_that_break_later_are_named(tmp_path):
    path = put(tmp_path / "a" / "1.png", png(random_bytes(40, 40)))
    dataset = FolderDataset(tmp_path, "all")
    put(path, path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"1\.png: not a whole image"):
        dataset.batch(torch.tensor([0]))
    assert dataset.find_damaged()[0].startswith(f"{path}: not a whole image")
    path.unlink()
    with pytest.raises(DataError, match=r"1\.png: cannot be read \(No such file"):
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


def test_classes_that_differ_between_splits_are_refused(tmp_path):
    for name in ("train/ant", "train/bee", "train/cow", "test/bee", "test/cow", "test/dog"):
        put(tmp_path / name / "1.png", png(random_bytes(4, 4)))
    for split in ("train", "test"):
        with pytest.raises(DataError, match="between train and test: 'ant' only in train; 'dog' only in test; give"):
            data.load(f"folder:{tmp_path}", split)


def test_one_in_five_of_each_class_is_tested_where_no_test_folder_is(tmp_path):
    for name, count in (("cat", 20), ("dog", 10), ("emu", 3), ("fox", 1)):
        for number in range(count):
            put(tmp_path / name / f"{number}.png", png(random_bytes(4, 4, seed=number)))
    name = f"folder:{tmp_path}"
    assert data.splits(name) == ("train", "test", "all")
    train, test, everything = (FolderDataset(tmp_path, split) for split in ("train", "test", "all"))
    assert test.labels.bincount(minlength=4).tolist() == [4, 2, 1, 0]
    assert train.labels.bincount(minlength=4).tolist() == [16, 8, 2, 1]
    assert sorted(train.paths + test.paths) == sorted(everything.paths)
    assert FolderDataset(tmp_path, "test").paths == test.paths
    assert "no test folder: one in 5 images of each class, 7 in all, are for testing and not trained on" in train.notes
    before = set(test.paths)
    put(tmp_path / "cat" / "another.png", png(random_bytes(4, 4)))
    assert len(before - set(FolderDataset(tmp_path, "test").paths)) <= 1  # a new image moves few others


def test_a_train_folder_alone_and_one_with_val(tmp_path):
    for number in range(10):
        put(tmp_path / "train" / "a" / f"{number}.png", png(random_bytes(4, 4)))
    name = f"folder:{tmp_path}"
    assert [len(data.load(name, split)) for split in data.splits(name)] == [8, 2]
    put(tmp_path / "val" / "a" / "1.png", png(random_bytes(4, 4)))
    assert [len(data.load(name, split)) for split in ("train", "validation", "test")] == [10, 1, 1]
    assert "no test folder: val is for testing" in data.load(name, "test").notes
    put(tmp_path / "valid" / "a" / "1.png", png(random_bytes(4, 4)))
    with pytest.raises(DataError, match="val and valid are both the validation split; keep one"):
        data.load(name, "train")


def test_a_class_may_be_called_train(tmp_path):
    for name in ("train/1.png", "plane/1.png"):
        put(tmp_path / name, png(random_bytes(4, 4)))
    assert data.load(f"folder:{tmp_path}", "all").classes == ("plane", "train")


def test_mixed_sizes_are_resized_and_all_is_said(tmp_path):
    put(tmp_path / "a" / "1.png", png(random_bytes(20, 30, 3)))
    put(tmp_path / "a" / "old" / "2.gif", png(random_bytes(50, 40), "GIF"))
    put(tmp_path / "a" / "3.tif", png(random_bytes(9, 9).astype(np.uint16) * 257, "TIFF"))
    put(tmp_path / "b" / "4.png", png(random_bytes(20, 30, 4)))
    put(tmp_path / "b" / "bad.png", b"<html>")
    put(tmp_path / "b" / "notes.txt", b"...")
    put(tmp_path / "loose.png", png(random_bytes(4, 4)))
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert dataset.batch(torch.arange(4)).image.shape == (4, 3, 128, 128)
    told = "\n".join(dataset.notes)
    for words in (
        "4 images of 2 classes",
        "images of 3 sizes from 9×9 to 40×50: the middle square of each, resized to 128×128",
        "gray and color images",
        "1 image with transparency, composed on white",
        "1 image of 16 bits, scaled",
        "1 image in folders inside class folders: a/old",
        "left out: 1 unreadable file: b/bad.png (not an image",
        "left out: 1 image outside of class folders: loose.png",
        "left out: 1 file of other kinds: .txt 1",
    ):
        assert words in told


def test_large_images_of_one_size_are_resized_too(tmp_path):
    put(tmp_path / "a" / "1.png", png(random_bytes(8, 600)))
    dataset = data.load(f"folder:{tmp_path}", "all")
    assert dataset[0].image.shape == (1, 128, 128)
    assert "images of 600×8 pixels: the middle square of each, resized to 128×128" in dataset.notes


def test_size_and_channels_are_those_of_all_splits(tmp_path):
    put(tmp_path / "train" / "a" / "1.png", png(random_bytes(9, 9)))
    put(tmp_path / "test" / "a" / "1.png", png(random_bytes(5, 5, 3)))
    for split in ("train", "test"):
        assert data.load(f"folder:{tmp_path}", split)[0].image.shape == (3, 128, 128)


def test_class_names_are_harmless_and_of_one_spelling(tmp_path):
    put(tmp_path / "train" / "caf\u00e9" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "train" / "x\x1b[2J" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "test" / "cafe\u0301" / "1.png", png(random_bytes(4, 4)))
    put(tmp_path / "test" / "x\x1b[2J" / "bad\x1b.png", b"")
    put(tmp_path / "test" / "x\x1b[2J" / "1.png", png(random_bytes(4, 4)))
    dataset = data.load(f"folder:{tmp_path}", "test")
    assert dataset.classes == ("caf\u00e9", "x\\x1b[2J")
    assert "\x1b" not in "".join(dataset.notes)
    put(tmp_path / "test" / "caf\u00e9" / "1.png", png(random_bytes(4, 4)))
    with pytest.raises(DataError, match="is also that of the folder"):
        data.load(f"folder:{tmp_path}", "test")
