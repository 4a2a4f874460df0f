import numpy as np
import pytest

from tests.data.written import put, random_bytes, tarred
from torchcaps import data
from torchcaps.data import DataError, cifar
from torchcaps.data.archives import members


def records(count: int, labels: int, seed: int = 0) -> np.ndarray:
    rows = random_bytes(count, labels + cifar.PIXELS, seed=seed)
    rows[:, :labels] %= 10
    return rows


def test_published_files(real):
    archive = real("cifar10/cifar-10-batches-bin.tar.xz")
    # Whichever part comes first: all of them would take ten seconds (`torchcaps data check cifar10` reads them).
    names = (member.name.rsplit("/", 1)[-1] for member in members(archive, cifar.LIMIT))
    file = next(name for name in names if name in cifar.SUMS_10)
    dataset = cifar.dataset(
        cifar.read_archive(archive, (file,), cifar.SUMS_10), archive, "cifar10", "train", cifar.CLASSES_10, 1
    )
    assert len(dataset) == 10_000
    assert all(900 < count < 1_100 for count in dataset.labels.bincount().tolist())
    assert dataset[0].image.shape == (3, 32, 32)


def test_class_names():
    assert len(cifar.CLASSES_100) == len(set(cifar.CLASSES_100)) == 100
    assert sorted(cifar.CLASSES_100) == list(cifar.CLASSES_100)


@pytest.mark.parametrize("packing", ["", "gz", "xz"])
def test_archive_and_unpacked_files_give_the_same(tmp_path, packing):
    parts = {file: records(3, 2, seed).tobytes() for seed, file in enumerate(("test.bin", "train.bin"))}
    inside = {f"cifar-100-binary/{name}": content for name, content in parts.items()}
    archive = put(tmp_path / "packed", tarred(inside, packing))
    bins = tuple(put(tmp_path / name, content) for name, content in parts.items())
    from_archive = cifar.read_archive(archive, tuple(parts), {})
    assert from_archive == cifar.read_records(bins)
    dataset = cifar.dataset(from_archive, archive, "cifar100", "test", cifar.CLASSES_100, 2)
    rows = np.concatenate([records(3, 2, 0), records(3, 2, 1)])
    assert dataset.labels.tolist() == rows[:, 1].tolist()
    assert dataset.metadata["coarse"].tolist() == rows[:, 0].tolist()
    np.testing.assert_array_equal(dataset.images[4].numpy(), rows[4, 2:].reshape(3, 32, 32))


def test_unpacked_files_under_published_names_are_verified(tmp_path):
    for file in cifar.FILES_10["train"]:
        put(tmp_path / "cifar10" / "cifar-10-batches-bin" / file, records(2, 1).tobytes())
    with pytest.raises(DataError, match=r"data_batch_1.bin: SHA-256 .* is not the published cee91656"):
        data.load("cifar10", "train", tmp_path)


def test_files_of_cifar100_load_by_name(tmp_path):
    path = put(tmp_path / "cifar100" / "cifar-100-binary" / "test.bin", records(10_000, 2).tobytes())
    assert len(data.load("cifar100", "test", tmp_path)) == 10_000
    put(path, records(4, 2).tobytes())
    with pytest.raises(DataError, match=r"test\.bin: 4 images in test, not 10,000"):
        data.load("cifar100", "test", tmp_path)
    with pytest.raises(DataError, match=r"neither cifar-100-binary/train\.bin nor cifar-100-binary\.tar\.gz"):
        data.load("cifar100", "train", tmp_path)


def test_wrong_archives(tmp_path):
    with pytest.raises(DataError, match=r"holds no train\.bin"):
        cifar.read_archive(put(tmp_path / "a.tar", tarred({"x/test.bin": b"1"})), ("train.bin",), {})
    with pytest.raises(DataError, match=r"SHA-256 .* of data_batch_1.bin is not the published"):
        cifar.read_archive(
            put(tmp_path / "b.tar", tarred({"data_batch_1.bin": b"1"})), ("data_batch_1.bin",), cifar.SUMS_10
        )
    short = records(2, 1).tobytes()[:-1]
    with pytest.raises(DataError, match="not a whole number of 3073-byte records"):
        cifar.dataset(bytearray(short), tmp_path / "c.bin", "cifar10", "train", cifar.CLASSES_10, 1)
    with pytest.raises(DataError, match="holds label 200"):
        cifar.dataset(bytearray(b"\xc8" + bytes(3072)), tmp_path / "d.bin", "cifar10", "test", cifar.CLASSES_10, 1)
