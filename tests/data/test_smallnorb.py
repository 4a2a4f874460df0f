import struct

import numpy as np
import pytest
import torch

from tests.data.written import norb, packed, put, random_bytes
from torchcaps import data
from torchcaps.data import DataError, smallnorb


def write(folder, pack, suffix="", count=6):
    images = random_bytes(count, 2, 96, 96)
    labels = np.arange(count, dtype=np.int32) % 5
    info = np.stack([np.arange(count) + 10 * column for column in range(4)], axis=1).astype(np.int32)
    stem = smallnorb.STEM["train"]
    for kind, values in (("dat", images), ("cat", labels), ("info", info)):
        put(folder / "smallnorb" / f"{stem}-{kind}.mat{suffix}", pack(norb(values)))
    return images, labels, info


def test_pairs_labels_and_metadata(tmp_path):
    images, labels, info = write(tmp_path, bytes)
    dataset = data.load("smallnorb", "train", tmp_path)
    assert len(dataset) == 6
    batch = dataset.batch(torch.tensor([5, 0]))
    np.testing.assert_allclose(batch.image.numpy(), images[[5, 0]] / 255, rtol=1e-6)
    assert batch.label.tolist() == labels[[5, 0]].tolist()
    assert list(batch.metadata) == ["instance", "elevation", "azimuth", "lighting"]
    assert [value.tolist() for value in batch.metadata.values()] == info[[5, 0]].T.tolist()
    assert isinstance(smallnorb.read_matrix(smallnorb.locate("train", tmp_path)[0], smallnorb.BYTE, 4), np.memmap)


def test_gzip_files_read_the_same(tmp_path):
    images, _, _ = write(tmp_path, packed, ".gz")
    dat, cat, info = smallnorb.locate("train", tmp_path)
    dataset = smallnorb.read(dat, cat, info, "train")
    np.testing.assert_array_equal(dataset.images.numpy(), images)
    with pytest.raises(DataError, match="is not the published 5ffd6272"):
        data.load("smallnorb", "train", tmp_path)


def test_mapped_images_cannot_change_the_file(tmp_path):
    images, _, _ = write(tmp_path, bytes)
    data.load("smallnorb", "train", tmp_path).images.zero_()  # pyright: ignore[reportAttributeAccessIssue]
    again = data.load("smallnorb", "train", tmp_path)
    np.testing.assert_allclose(again[0].image.numpy(), images[0] / 255, rtol=1e-6)


@pytest.mark.parametrize("pack", [packed, bytes])
def test_broken_files(tmp_path, pack):
    good = norb(random_bytes(2, 2, 4, 4))
    for bad, words in (
        (good[:-1], "ends after|not the 88"),
        (good + b"x", "more bytes|not the 88"),
        (struct.pack("<I", 0x1E3D4C54) + good[4:], "1e3d4c54 and 4 axes, not 1e3d4c55"),
        (good[:4] + struct.pack("<I", 2**31) + good[8:], "2147483648 axes"),
        (good[:8] + struct.pack("<I", 2**32 - 1) + good[12:], "its header claims 4294967295×2"),
        (good[:8] + bytes(4) + good[12:], "its header claims 0×2"),
        (good[:20], "sizes"),
    ):
        with pytest.raises(DataError, match=words):
            smallnorb.read_matrix(put(tmp_path / "bad.mat", pack(bad)), smallnorb.BYTE, 4)


def test_files_that_do_not_belong_together(tmp_path):
    write(tmp_path, bytes)
    dat, cat, info = smallnorb.locate("train", tmp_path)
    put(cat, norb(np.zeros(5, np.int32)))
    with pytest.raises(DataError, match="6 pairs, but 5 labels"):
        smallnorb.read(dat, cat, info, "train")
    put(cat, norb(np.full(6, 5, np.int32)))
    with pytest.raises(DataError, match="labels from 5 to 5"):
        smallnorb.read(dat, cat, info, "train")
    put(dat, norb(random_bytes(6, 3, 4, 4)))
    with pytest.raises(DataError, match="3 images for each object"):
        smallnorb.read(dat, cat, info, "train")
