import pickle

import numpy as np
import pytest
import torch

import torchcaps.data.npy
from tests.data.written import npy, put, random_bytes, zipped
from torchcaps import data
from torchcaps.data import DataError
from torchcaps.data.arrays import read_npz


def write(path, **arrays):
    np.savez_compressed(path, **arrays)
    return f"arrays:{path}"


def test_splits_metadata_and_class_names(tmp_path):
    images, labels = random_bytes(4, 3, 5, 6), np.array([1, 0, 2, 1])
    name = write(
        tmp_path / "x.npz",
        train_images=images,
        train_labels=labels,
        train_angle=np.arange(4.0),
        test_images=images[:, 0],
        test_labels=labels.astype(np.uint8),
        classes=np.array(["a", "b", "c"]),
    )
    train, test = data.load(name, "train"), data.load(name, "test")
    assert (train.classes, test.classes) == (("a", "b", "c"),) * 2
    assert train[2].metadata["angle"] == 2.0
    np.testing.assert_allclose(train[1].image.numpy(), images[1] / 255, rtol=1e-6)
    assert test[0].image.shape == (1, 5, 6)
    with pytest.raises(DataError, match="no images and labels for split 'all'; it holds classes, test_images"):
        data.load(name, "all")


def test_one_split_of_floats_in_any_order_of_bytes_and_axes(tmp_path):
    images = np.asfortranarray(random_bytes(3, 4, 5) / 255).astype(">f8")
    dataset = data.load(write(tmp_path / "x.npz", images=images, labels=np.array([0, 1, 1])), "all")
    np.testing.assert_allclose(dataset.batch(torch.arange(3)).image[:, 0].numpy(), images, rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": random_bytes(2, 8, 8, 3), "labels": np.zeros(2, int)}, r"channels last; transpose\(0, 3, 1, 2\)"),
        ({"images": random_bytes(2, 8), "labels": np.zeros(2, int)}, r"images of shape \(2, 8\)"),
        ({"images": random_bytes(2, 8, 8, 4), "labels": np.zeros(2, int)}, "channels last"),
        (
            {"images": random_bytes(2, 8, 8) * 1.0, "labels": np.zeros(2, int)},
            r"float64 from \d+ to \d+; .*images / 255",
        ),
        (
            {"images": random_bytes(2, 8, 8) - 5.5, "labels": np.zeros(2, int)},
            r"floats from 0 to 1: \(images - -5.5\) / ",
        ),
        ({"images": random_bytes(2, 8, 8).astype(int), "labels": np.zeros(2, int)}, r"images\.astype\(np\.uint8\)"),
        ({"images": random_bytes(2, 8, 8).astype(np.uint16), "labels": np.zeros(2, int)}, "uint16 .* images / 65535"),
        ({"images": random_bytes(2, 8, 8) > 9, "labels": np.zeros(2, int)}, r"images of bool; .*astype\(float\)"),
        (
            {"images": np.stack([np.ones((3, 3)), np.full((3, 3), np.nan)]), "labels": np.zeros(2, int)},
            r"1 of 2 images hold NaN or infinity, the first of them images\[1\]; wanted floats from 0 to 1: repair",
        ),
        ({"images": random_bytes(2, 8, 8), "labels": np.zeros(3, int)}, "2 images but 3 labels"),
        ({"images": random_bytes(2, 8, 8), "labels": np.array([-1, 0])}, "whole numbers from 0"),
        ({"images": random_bytes(2, 8, 8), "labels": np.array([0.5, 0])}, "whole numbers from 0"),
        ({"images": random_bytes(2, 8, 8), "labels": np.array([0, 3]), "classes": np.array(["a"])}, "at least 4 names"),
        (
            {"images": random_bytes(2, 8, 8), "labels": np.array([0, 1]), "classes": np.array(["a", "a"])},
            "'a' more than",
        ),
        ({"pictures": random_bytes(2, 8, 8)}, "it holds pictures"),
    ],
)
def test_arrays_that_are_no_dataset(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words):
        data.load(write(tmp_path / "x.npz", **arrays), "all")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_pickles_are_refused_and_never_executed(tmp_path):
    evil = np.array([Bomb()], dtype=object)
    path = put(tmp_path / "x.npz", zipped({"images.npy": npy(evil, allow_pickle=True)}))
    with pytest.raises(DataError, match="holds pickled objects, which are never loaded"):
        data.load(f"arrays:{path}", "all")
    with pytest.raises(DataError, match="not a whole archive"):
        data.load(f"arrays:{put(tmp_path / 'y.npz', pickle.dumps(Bomb()))}", "all")


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999,)}"), "claims 99999999999 uint8"),
        (header("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}"), "names no plain type, order and shape"),
        (header("{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}"), "names no plain type, order and shape"),
        (header("{'descr': '|u1', 'fortran_order': False, 'shape': (1, , 2)}"), r"has the shape \(1, , 2\)"),
        (header("{'descr': '|u1', 'fortran_order': False, 'shape': (" + "1," * 9 + ")}"), "has the shape"),
        (header("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,)}"), "names no plain type"),
        (header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}"), "'<M8.s.', not of numbers"),
        (header("{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}"), "'<U0', not of numbers"),
        (header("{'descr': '<f1', 'fortran_order': False, 'shape': (1,)}"), "numpy does not know"),
        (header("__import__('os').abort()"), "which names no plain type"),
        (header("(" * 3000), "which names no plain type"),
        (header("[1]"), "which names no plain type"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header of 4,294,967,295 bytes"),
        (b"\x93NUMPY", "ends after"),
        (b"text that is no array", "not as a numpy array does"),
    ],
)
def test_lying_headers(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        read_npz(put(tmp_path / "x.npz", zipped({"images.npy": content})))


@pytest.mark.parametrize("code", [0xFFFFFFFF, 0x110000, 0xD800, 0x1B])
@pytest.mark.parametrize("order", "<>")
def test_class_names_are_text(tmp_path, code, order):
    names = np.array(["cat", "dog"], dtype=f"{order}U3")
    names.view(f"{order}u4")[4] = code
    images = random_bytes(2, 4, 4)
    content = {"images": images, "labels": np.arange(2), "classes": names}
    path = put(tmp_path / "x.npz", zipped({f"{name}.npy": npy(values) for name, values in content.items()}))
    with pytest.raises(DataError, match="classes holds characters that no text has"):
        data.load(f"arrays:{path}", "all")


def test_missing_file():
    with pytest.raises(DataError, match=r"no such file; `arrays:FILE\.npz`"):
        data.load("arrays:/nowhere/x.npz", "all")
    with pytest.raises(DataError, match=r"is a folder; .* a folder of images is folder:/"):
        data.load("arrays:/", "all")


@pytest.mark.parametrize("prefix", ["", "train_"])
def test_one_in_five_is_tested_where_no_test_images_are(tmp_path, prefix):
    images, labels = random_bytes(30, 4, 4), np.repeat([0, 1], [20, 10])
    name = write(tmp_path / "x.npz", **{f"{prefix}images": images, f"{prefix}labels": labels})
    train, test = data.load(name, "train"), data.load(name, "test")
    assert (len(train), len(test)) == (24, 6)
    assert test.batch(torch.arange(6)).label.bincount().tolist() == [4, 2]
    assert "one in 5 of each class, 6 in all" in train.notes[0]
    pixels = torch.cat([part.batch(torch.arange(len(part))).image for part in (train, test)])
    assert len(pixels.flatten(1).unique(dim=0)) == 30


def test_every_split_numbers_the_same_classes(tmp_path):
    images = random_bytes(3, 4, 4)
    train, test = np.array([0, 1, 5]), np.array([0, 1, 1])
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=train, test_images=images, test_labels=test)
    assert data.load(f"arrays:{tmp_path / 'x.npz'}", "test").classes == tuple("012345")
    assert data.splits(f"arrays:{tmp_path / 'x.npz'}") == ("train", "test")


def test_what_does_not_fit_into_memory_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(torchcaps.data.npy, "_memory", lambda: 40_000)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, images=np.zeros((50, 30, 30), np.uint8), labels=np.zeros(50, int))
    with pytest.raises(DataError, match=r"images\.npy unpacks to 45,000 bytes, more than this machine's memory"):
        data.load(f"arrays:{path}", "all")
