"""Small valid files in every format that the library reads, written by hand or by an independent writer."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

from torchcaps.data import smallnorb

Mutate = Callable[[bytes], bytes]


def same(data: bytes) -> bytes:
    return data


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def norb(values: np.ndarray) -> bytes:
    mark = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54}[values.dtype.name]
    sizes = (*values.shape, 1, 1, 1)[: max(3, values.ndim)]
    return struct.pack(f"<II{len(sizes)}I", mark, values.ndim, *sizes) + values.tobytes()


def mat(arrays: dict, compressed: bool) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


def png(pixels: np.ndarray, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=form)
    return file.getvalue()


def npy(values: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, **options)
    return file.getvalue()


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def tarred(files: dict[str, bytes], packing: str = "") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{packing}") as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def write_smallnorb(folder: Path, size: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    """Both splits in the files of smallNORB, with every category, elevation and azimuth once, and the images."""
    views = np.meshgrid(np.arange(9), np.arange(0, 36, 2), np.arange(5), indexing="ij")
    elevation, azimuth, label = (values.ravel().astype(np.int32) for values in views)
    pictures: dict[str, np.ndarray] = {}
    for split, stem in smallnorb.STEM.items():
        instance = np.full_like(label, {"train": 4, "test": 0}[split])
        info = np.stack([instance, elevation, azimuth, np.zeros_like(label)], axis=1)
        pictures[split] = random_bytes(len(label), 2, size, size, seed=seed + len(pictures))
        for kind, values in (("dat", pictures[split]), ("cat", label), ("info", info)):
            put(folder / "smallnorb" / f"{stem}-{kind}.mat", norb(values))
    return pictures
