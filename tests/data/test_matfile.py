"""The .mat reader, held to scipy's writer, and the two datasets that come in such files."""

import struct

import numpy as np
import pytest
import scipy.io
import torch

from tests.data.written import mat, put, random_bytes
from torchcaps import data
from torchcaps.data import DataError, affnist, svhn
from torchcaps.data.matfile import read_mat

LIMIT = 1 << 20


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_numbers_of_every_type_and_odd_shapes(tmp_path, compressed, dtype):
    values = random_bytes(2, 7, 3, 5).astype(dtype)
    tiny = np.array([[3]], dtype)
    path = put(tmp_path / "a.mat", mat({"values": values, "tiny": tiny}, compressed))
    found = read_mat(path, LIMIT)
    assert set(found) == {"values", "tiny"}
    np.testing.assert_array_equal(found["values"], values)
    np.testing.assert_array_equal(found["tiny"], tiny)
    assert isinstance(found["values"], np.ndarray)
    assert found["values"].dtype == values.dtype


@pytest.mark.parametrize("compressed", [False, True])
def test_structures_and_the_fields_that_are_wanted(tmp_path, compressed):
    fields = {"image": random_bytes(16, 3), "label": np.array([[1.0, 2.0, 3.0]]), "text": "words"}
    path = put(tmp_path / "a.mat", mat({"s": fields, "after": np.eye(2)}, compressed))
    found = read_mat(path, LIMIT, wanted=("image", "label").__contains__)
    assert isinstance(found["s"], dict)
    assert set(found["s"]) == {"image", "label"}
    np.testing.assert_array_equal(found["s"]["image"], fields["image"])
    np.testing.assert_array_equal(found["after"], np.eye(2))
    with pytest.raises(DataError, match="MATLAB class 4"):
        read_mat(path, LIMIT)


def test_the_other_byte_order(tmp_path):
    flags, shape = struct.pack(">IIII", 6, 8, 6, 0), struct.pack(">IIii", 5, 8, 1, 2)
    name, numbers = struct.pack(">I4s", 1 << 16 | 1, b"x"), struct.pack(">II2d", 9, 16, 1.5, -2.0)
    body = flags + shape + name + numbers
    header = b"hand-made".ljust(124) + struct.pack(">H", 0x0100) + b"MI"
    path = put(tmp_path / "big.mat", header + struct.pack(">II", 14, len(body)) + body)
    np.testing.assert_array_equal(read_mat(path, LIMIT)["x"], [[1.5, -2.0]])
    np.testing.assert_array_equal(scipy.io.loadmat(path)["x"], [[1.5, -2.0]])


def test_lying_and_hostile_files(tmp_path):
    good = mat({"x": random_bytes(10, 10)}, False)
    with pytest.raises(DataError, match="not 0001494d"):
        read_mat(put(tmp_path / "a", b"v7.3, which is HDF5".ljust(200)), LIMIT)
    at = good.index(struct.pack("<II", 2, 100))
    with pytest.raises(DataError, match="claims 4,294,967,280 bytes"):
        read_mat(put(tmp_path / "b", good[: at + 4] + b"\xf0\xff\xff\xff" + good[at + 8 :]), LIMIT)
    at = good.index(struct.pack("<ii", 10, 10))
    with pytest.raises(DataError, match="bytes for an array of"):
        read_mat(put(tmp_path / "c", good[:at] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + good[at + 8 :]), LIMIT)
    with pytest.raises(DataError, match="ends after"):
        read_mat(put(tmp_path / "d", good[:-20]), LIMIT)
    bomb = mat({"x": np.zeros((1, 8 << 20), np.uint8)}, True)
    with pytest.raises(DataError, match=r"more than"):
        read_mat(put(tmp_path / "e", bomb), LIMIT)
    objects = mat({"x": np.array([[1, "a"]], dtype=object)}, False)
    with pytest.raises(DataError, match="MATLAB class 1"):
        read_mat(put(tmp_path / "f", objects), LIMIT)


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(tmp_path, compressed):
    images, labels = random_bytes(32, 32, 3, 4), np.array([[10], [1], [9], [5]], np.uint8)
    path = put(tmp_path / "train_32x32.mat", mat({"X": images, "y": labels}, compressed))
    dataset = svhn.read(path, "train")
    assert dataset.labels.tolist() == [0, 1, 9, 5]
    np.testing.assert_array_equal(dataset.images.numpy(), images.transpose(3, 2, 0, 1))
    np.testing.assert_allclose(dataset[2].image[1, 30, 7].item(), images[30, 7, 1, 2] / 255, rtol=1e-6)


def test_svhn_by_name_is_verified(tmp_path):
    put(tmp_path / "svhn" / "test_32x32.mat", mat({"X": random_bytes(32, 32, 3, 1), "y": np.array([[1]])}, True))
    with pytest.raises(DataError, match="is not the published cdce80df"):
        data.load("svhn", "test", tmp_path)
    with pytest.raises(DataError, match="fetch svhn --everything"):
        data.load("svhn", "extra", tmp_path)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": random_bytes(32, 32, 3, 2)}, "not the arrays X and y"),
        ({"X": random_bytes(32, 32, 2), "y": np.ones((2, 1))}, r"X is uint8 \(32, 32, 2\)"),
        ({"X": random_bytes(32, 32, 3, 2), "y": np.ones((3, 1))}, "y is not 2 labels"),
        ({"X": random_bytes(32, 32, 3, 2), "y": np.full((2, 1), 11)}, "labels from 1 to 10"),
        ({"X": random_bytes(32, 32, 3, 2), "y": np.full((2, 1), np.nan)}, "labels from 1 to 10"),
    ],
)
def test_svhn_with_other_arrays(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words):
        svhn.read(put(tmp_path / "x.mat", mat(arrays, True)), "train")


def batch(count: int, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    return {
        "affine_matrix": np.array([["skipped"]], dtype=object),
        "image": random_bytes(1600, count, seed=seed),
        "label_int": rng.integers(0, 10, (1, count)).astype(np.uint8),
        "label_one_of_n": rng.random((10, count)),
        "human_readable_transform": rng.random((6, count)),
    }


def test_affnist_batches_in_numeric_order(tmp_path):
    parts = [batch(2, number) for number in range(affnist.BATCHES)]
    folder = tmp_path / "affnist" / "test_batches"
    for number, part in enumerate(parts):
        put(folder / f"{number + 1}.mat", mat({"affNISTdata": part}, number % 2 == 0))
    dataset = data.load("affnist", "test", tmp_path)
    images = np.concatenate([part["image"].T for part in parts]).reshape(-1, 40, 40)
    batched = dataset.batch(torch.arange(len(dataset)))
    np.testing.assert_allclose(batched.image[:, 0].numpy(), images / 255, rtol=1e-6)
    assert batched.label.tolist() == np.concatenate([part["label_int"][0] for part in parts]).tolist()
    transforms = np.concatenate([part["human_readable_transform"].T for part in parts])
    np.testing.assert_allclose(batched.metadata["transform"].numpy(), transforms, rtol=1e-6)
    (folder / "7.mat").unlink()
    with pytest.raises(DataError, match=r"1\.mat to 32\.mat .*1 are missing.*fetch affnist"):
        data.load("affnist", "test", tmp_path)


def test_affnist_in_one_file_and_wrong_ones(tmp_path):
    put(tmp_path / "affnist" / "test.mat", mat({"affNISTdata": batch(2, 0)}, True))
    assert len(data.load("affnist", "test", tmp_path)) == 2
    with pytest.raises(DataError, match="affine_mnist"):
        data.load("affnist", "train", tmp_path)
    for change, words in (
        ({"image": random_bytes(784, 2)}, r"image is uint8 \(784, 2\)"),
        ({"label_int": np.array([[1, 11]])}, "labels from 0 to 9"),
    ):
        with pytest.raises(DataError, match=words):
            affnist.read((put(tmp_path / "x.mat", mat({"affNISTdata": batch(2, 0) | change}, True)),), "test")
    with pytest.raises(DataError, match="not the structure affNISTdata"):
        affnist.read((put(tmp_path / "y.mat", mat({"other": np.eye(2)}, True)),), "test")
