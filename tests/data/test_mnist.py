import numpy as np
import pytest
import torch

from tests.data.written import idx, packed, put, random_bytes
from torchcaps import data
from torchcaps.data import DataError, mnist


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_published_files(real, name):
    real(name)
    train, test = data.load(name, "train"), data.load(name, "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    batch = train.batch(torch.tensor([0, 59_999]))
    assert batch.image.shape == (2, 1, 28, 28)
    assert batch.image.dtype == torch.float32
    assert 0 <= batch.image.min() < batch.image.max() <= 1
    first = {"mnist": "5", "fashion_mnist": "ankle boot"}[name]
    assert train.classes[int(batch.label[0])] == first


@pytest.mark.parametrize("pack", [packed, bytes])
def test_images_and_labels_in_any_packing(tmp_path, pack):
    pixels, labels = random_bytes(5, 4, 3), np.array([0, 9, 2, 3, 1], np.uint8)
    images = put(tmp_path / "images", pack(idx(pixels)))
    dataset = mnist.read_pair(images, put(tmp_path / "labels", pack(idx(labels))), "mnist", "train", mnist.DIGITS)
    assert len(dataset) == 5
    np.testing.assert_allclose(dataset[1].image[0].numpy(), pixels[1] / 255, rtol=1e-6)
    assert dataset.labels.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda good: good[:-1], "ends after 59 of 60 bytes"),
        (lambda good: good + b"x", "more bytes than its header says"),
        (lambda good: b"\0\0\x0d\3" + good[4:], "starts with 00000d03, not 00000803"),
        (lambda good: good[:7] + b"\xff" + good[8:], "ends after"),
        (lambda good: good[:4] + b"\xff" * 12 + good[16:], "its header claims 4294967295×"),
        (lambda good: good[:10], "IDX header"),
        (lambda good: b"", "IDX header"),
    ],
)
@pytest.mark.parametrize("pack", [packed, bytes])
def test_broken_files_are_named_with_what_is_wrong(tmp_path, spoil, words, pack):
    path = put(tmp_path / "spoilt", pack(spoil(idx(random_bytes(5, 4, 3)))))
    with pytest.raises(DataError, match="spoilt.*" + words):
        mnist.read_idx(path, 3)


def test_truncated_and_forged_gzip(tmp_path):
    good = packed(idx(random_bytes(5, 4, 3)))
    for bad in (good[:-9], good[:30], good[:-6] + b"\0" * 6):
        with pytest.raises(DataError, match="fetch it again"):
            mnist.read_idx(put(tmp_path / "bad.gz", bad), 3)


def test_a_gzip_bomb_stops_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "LIMIT", 1 << 16)
    header = bytes((0, 0, 8, 1)) + (1 << 16).to_bytes(4, "big")
    path = put(tmp_path / "bomb.gz", packed(header + bytes(1 << 24)))
    with pytest.raises(DataError, match="more than the 65,536 bytes"):
        mnist.read_idx(path, 1)


def test_files_under_the_published_names_must_be_the_published_ones(tmp_path):
    for kind, values in (("images-idx3", random_bytes(5, 28, 28)), ("labels-idx1", np.zeros(5, np.uint8))):
        put(tmp_path / "mnist" / f"train-{kind}-ubyte", idx(values))
    with pytest.raises(DataError, match=r"SHA-256 .* is not the published ba891046.*fetch mnist"):
        data.load("mnist", "train", tmp_path)


def test_missing_files_say_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"no train-images-idx3-ubyte.gz.*torchcaps data fetch mnist"):
        data.load("mnist", "train", tmp_path)


def test_wrong_labels_and_counts(tmp_path):
    images = put(tmp_path / "images", idx(random_bytes(2, 3, 3)))
    with pytest.raises(DataError, match="holds label 10"):
        mnist.read_pair(images, put(tmp_path / "a", idx(np.array([1, 10], np.uint8))), "mnist", "train", mnist.DIGITS)
    with pytest.raises(DataError, match="2 images but 3 labels"):
        mnist.read_pair(images, put(tmp_path / "b", idx(np.zeros(3, np.uint8))), "mnist", "train", mnist.DIGITS)
