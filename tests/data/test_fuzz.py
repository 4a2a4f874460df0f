"""Every reader on spoilt files: it reads them or raises the library's own error, quickly and in little memory.

A case writes a small valid file, spoils the layer that it names (the plain bytes before packing, or the packed file, or
one image inside an archive), and reads it. Spoiling below the packing matters: gzip and zip carry checksums of their
own, which would otherwise catch everything before our readers see it.
"""

import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.written import Mutate, idx, mat, norb, npy, packed, png, put, random_bytes, same, tarred, zipped
from torchcaps.data import DataError, affnist, archives, cifar, coil20, mnist, smallnorb, sst, svhn
from torchcaps.data.arrays import load_arrays
from torchcaps.data.base import Dataset
from torchcaps.data.folder import FolderDataset
from torchcaps.data.npy import map_npy

MEMORY = 48 << 20  # bytes; the files are all below 100 kB
SECONDS = 5.0
Case = Callable[[Path, Mutate], object]

DIGITS = idx(np.arange(6, dtype=np.uint8))
DIGIT_IMAGES = idx(random_bytes(6, 5, 4))
RECORDS = np.concatenate([np.full((3, 1), 4, np.uint8), random_bytes(3, cifar.PIXELS)], axis=1).tobytes()
SVHN = {"X": random_bytes(32, 32, 3, 2), "y": np.array([[10], [3]], np.uint8)}
AFFNIST = {
    "affNISTdata": {
        "image": random_bytes(1600, 2),
        "label_int": np.array([[3, 4]], np.uint8),
        "human_readable_transform": np.ones((6, 2)),
    }
}
NORB = {
    "dat": norb(random_bytes(3, 2, 8, 8)),
    "cat": norb(np.array([0, 1, 4], np.int32)),
    "info": norb(np.ones((3, 4), np.int32)),
}
TREES = b"(3 (2 A) (4 (3 lovely) (2 film)))\n(2 (2 -LRB-) (2 (2 film) (2 -RRB-)))\n(0 dull)\n"
ARRAYS = {
    "images.npy": npy(random_bytes(3, 5, 4)),
    "labels.npy": npy(np.array([0, 1, 1])),
    "classes.npy": npy(np.array(["a", "b"])),
    "angle.npy": npy(np.array([0.5, 1.5, 2.5])),
}
VIEW = png(random_bytes(128, 128) // 64)


def digits(pack: Callable[[bytes], bytes], which: str) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        spoilt = {"images": DIGIT_IMAGES, "labels": DIGITS}
        spoilt[which] = spoil(spoilt[which])
        images, labels = (put(folder / kind, pack(content)) for kind, content in spoilt.items())
        return mnist.read_pair(images, labels, "mnist", "train", mnist.DIGITS)

    return case


def digits_packed(folder: Path, spoil: Mutate) -> object:
    return mnist.read_idx(put(folder / "images.gz", spoil(packed(DIGIT_IMAGES))), 3)


def cifar_archive(packing: str, inner: bool) -> Case:
    whole = tarred({"x/test_batch.bin": RECORDS}, packing)  # once: writing .xz takes 100 MB of memory

    def case(folder: Path, spoil: Mutate) -> object:
        content = tarred({"x/test_batch.bin": spoil(RECORDS)}) if inner else spoil(whole)
        path = put(folder / "cifar.tar", content)
        records = cifar.read_archive(path, ("test_batch.bin",), {})
        return cifar.dataset(records, path, "cifar10", "test", cifar.CLASSES_10, 1)

    return case


def toys(kind: str, pack: Callable[[bytes], bytes]) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        content = {name: pack(spoil(matrix) if name == kind else matrix) for name, matrix in NORB.items()}
        dat, cat, info = (put(folder / name, matrix) for name, matrix in content.items())
        return smallnorb.read(dat, cat, info, "train")

    return case


def house_numbers(compressed: bool) -> Case:
    return lambda folder, spoil: svhn.read(put(folder / "x.mat", spoil(mat(SVHN, compressed))), "train")


def affine_digits(compressed: bool) -> Case:
    return lambda folder, spoil: affnist.read((put(folder / "x.mat", spoil(mat(AFFNIST, compressed))),), "test")


def trees(archive: bool, inner: bool) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        text = spoil(TREES) if inner else TREES
        content = zipped({"trees/dev.txt": text}) if archive else text
        path = put(folder / ("dev.zip" if archive else "dev.txt"), content if inner else spoil(content))
        return sst.read(path, "dev", name="sst5", unique_phrases=True)

    return case


def objects(inner: bool) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        content = zipped({"p/obj1__0.png": spoil(VIEW) if inner else VIEW, "p/obj1__1.png": VIEW}, zipfile.ZIP_STORED)
        return coil20.read(put(folder / "x.zip", content if inner else spoil(content)), objects=1, views=2)

    return case


def pictures(form: str) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        put(folder / "class" / "1.png", png(random_bytes(9, 7, 3)))
        kind = {"jpg": "JPEG", "tif": "TIFF"}.get(form, form.upper())
        put(folder / "class" / f"2.{form}", spoil(png(random_bytes(9, 7, 3), kind)))
        return FolderDataset(folder, "all")

    return case


def arrays(which: str) -> Case:
    def case(folder: Path, spoil: Mutate) -> object:
        content = {name: spoil(data) if name == which else data for name, data in ARRAYS.items()}
        return load_arrays(put(folder / "x.npz", zipped(content)), "all")

    return case


def arrays_packed(folder: Path, spoil: Mutate) -> object:
    return load_arrays(put(folder / "x.npz", spoil(zipped(ARRAYS))), "all")


def mapped(folder: Path, spoil: Mutate) -> object:
    return map_npy(put(folder / "x.npy", spoil(npy(random_bytes(6, 2, 4, 4)))), "render it again")


def unpacking(pack: Callable[[dict[str, bytes]], bytes]) -> Case:
    content = pack({"a/b": b"1" * 700, "c": b"2" * 20})
    return lambda folder, spoil: archives.unpack(put(folder / "archive", spoil(content)), folder / "out", 10_000)


CASES: dict[str, Case] = {
    "idx images": digits(bytes, "images"),
    "idx labels": digits(bytes, "labels"),
    "idx images in gzip": digits(packed, "images"),
    "idx gzip": digits_packed,
    "cifar records": cifar_archive("", True),
    "cifar tar": cifar_archive("", False),
    "cifar tar.gz": cifar_archive("gz", False),
    "cifar tar.xz": cifar_archive("xz", False),
    "svhn plain": house_numbers(False),
    "svhn compressed": house_numbers(True),
    "smallnorb dat": toys("dat", bytes),
    "smallnorb cat": toys("cat", bytes),
    "smallnorb info": toys("info", bytes),
    "smallnorb dat in gzip": toys("dat", packed),
    "affnist plain": affine_digits(False),
    "affnist compressed": affine_digits(True),
    "sst trees": trees(False, True),
    "sst trees in zip": trees(True, True),
    "sst zip": trees(True, False),
    "coil20 image": objects(True),
    "coil20 zip": objects(False),
    "folder png": pictures("png"),
    "folder jpeg": pictures("jpg"),
    "folder bmp": pictures("bmp"),
    "folder ppm": pictures("ppm"),
    "folder webp": pictures("webp"),
    "folder gif": pictures("gif"),
    "folder tiff": pictures("tif"),
    "npz": arrays_packed,
    "npy images": arrays("images.npy"),
    "npy labels": arrays("labels.npy"),
    "npy classes": arrays("classes.npy"),
    "npy mapped": mapped,
    "unpack zip": unpacking(zipped),
    "unpack tar": unpacking(tarred),
}


@st.composite
def spoiling(draw: st.DrawFn) -> Mutate:
    """Flip a few bits, most of them near the start where headers are; overwrite a number; cut; or all of these."""
    near_start = st.integers(0, 200)
    anywhere = st.integers(0, 1 << 20)
    flips = draw(st.lists(st.tuples(near_start | anywhere, st.integers(0, 7)), max_size=4))
    number = draw(st.none() | st.tuples(near_start | anywhere, st.sampled_from([b"\0", b"\xff", b"\x7f\xff\xff\xff"])))
    keep = draw(st.none() | st.floats(0, 1))

    def spoil(good: bytes) -> bytes:
        data = bytearray(good)
        for position, bit in flips:
            data[position % len(data)] ^= 1 << bit
        if number is not None:
            at = number[0] % len(data)
            data[at : at + 4] = (number[1] * 4)[:4]
        return bytes(data[: int(len(data) * keep)] if keep is not None else data)

    return spoil


def read_or_refuse(case: Case, folder: Path, spoil: Mutate) -> object:
    try:
        found = case(folder, spoil)
        if isinstance(found, Dataset):
            found.batch(torch.arange(min(2, len(found))))
    except DataError as error:
        if str(folder) not in str(error):
            raise AssertionError("the message names no file") from error
        return None
    return found


def read_within_limits(case: Case, spoil: Mutate) -> object:
    began = time.monotonic()
    tracemalloc.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = read_or_refuse(case, Path(folder), spoil)
            assert not list(Path(folder).rglob(".unpacking-*"))
            return found
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY, f"{peak:,} bytes were allocated"
        assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("name", CASES)
def test_the_unspoilt_file_is_read(name):
    assert read_within_limits(CASES[name], same) is not None


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(spoil=spoiling())
def test_spoilt_files(name, spoil):
    read_within_limits(CASES[name], spoil)
