"""CIFAR-10 and CIFAR-100, binary version: 50,000 + 10,000 color images of 32×32.

Read from the unpacked .bin files, or straight from the archive (.tar.gz as published, or .tar.xz). Krizhevsky,
"Learning Multiple Layers of Features from Tiny Images" (2009).
"""

import hashlib
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.archives import members
from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, verify_published
from torchcaps.data.files import opened, read_exactly, verify

PIXELS = 3 * 32 * 32
SITE = "https://www.cs.toronto.edu/~kriz/"
LIMIT = 256 << 20  # above the 184 MB of the unpacked files

CLASSES_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES_100 = tuple(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905 - a hundred quoted words would be harder to read
)
FILES_10 = {"train": tuple(f"data_batch_{part}.bin" for part in range(1, 6)), "test": ("test_batch.bin",)}
FILES_100 = {"train": ("train.bin",), "test": ("test.bin",)}

SUMS_10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def locate(paths: dict[str, tuple[str, ...]], archives: tuple[str, ...], inside: str, name: str):
    """A function that finds the .bin files of a split, or else an archive that holds them."""

    def found(split: str, root: Path) -> tuple[Path, ...]:
        directory = root / name
        for folder in (directory / inside, directory):
            files = tuple(folder / file for file in paths[split])
            if all(file.is_file() for file in files):
                return files
        for archive in archives:
            if (directory / archive).is_file():
                return (directory / archive,)
        raise DataError(
            f"{name}/{split}: neither {inside}/{paths[split][0]} nor {archives[0]} in {directory}; run "
            f"`torchcaps data fetch {name}`, or put the archive there by hand"
        )

    return found


def read_records(paths: tuple[Path, ...]) -> bytearray:
    """The bytes of these .bin files, one after the other."""
    records = bytearray()
    for path in paths:
        with opened(path, LIMIT) as stream:
            read_exactly(stream, path.stat().st_size, path, "records", into=records)
    return records


def read_archive(path: Path, files: tuple[str, ...], sums: dict[str, str]) -> bytearray:
    """The bytes of these members, in the order given, held to their SHA-256 where one is known."""
    parts: dict[str, bytearray] = {}
    for member in members(path, LIMIT):
        file = member.name.rsplit("/", 1)[-1]
        if file in files and file not in parts:
            parts[file] = read_exactly(member.stream, member.size, path, file)
            found = hashlib.sha256(parts[file]).hexdigest()
            if file in sums and found != sums[file]:
                raise DataError(f"{path}: SHA-256 {found[:16]}… of {file} is not the published {sums[file][:16]}…")
            if len(parts) == len(files):
                break
    lacking = [file for file in files if file not in parts]
    if lacking:
        raise DataError(f"{path}: holds no {lacking[0]}; this is not the binary version of CIFAR")
    return bytearray().join(parts[file] for file in files)


def dataset(
    records: bytearray, source: Path, name: str, split: str, classes: tuple[str, ...], labels: int
) -> ArrayDataset:
    """Records of label bytes (CIFAR-100: coarse, then fine) and 3,072 pixel bytes as a dataset."""
    width = labels + PIXELS
    if not records or len(records) % width:
        raise DataError(f"{source}: {len(records):,} bytes are not a whole number of {width}-byte records")
    rows = np.frombuffer(records, dtype=np.uint8).reshape(-1, width)
    images = torch.from_numpy(rows[:, labels:].reshape(-1, 3, 32, 32))
    label = torch.from_numpy(rows[:, labels - 1].astype(np.int64))
    if int(label.max()) >= len(classes):
        raise DataError(f"{source}: holds label {int(label.max())}; {name} has the classes 0 to {len(classes) - 1}")
    metadata = {"coarse": torch.from_numpy(rows[:, 0].astype(np.int64))} if labels == 2 else {}
    return ArrayDataset(name, split, classes, images, label, metadata)


def _entry(
    name: str,
    about: str,
    classes: tuple[str, ...],
    labels: int,
    paths: dict[str, tuple[str, ...]],
    inside: str,
    archive: RemoteFile,
    sums: dict[str, str],
) -> DatasetEntry:
    find = locate(paths, (archive.name, f"{inside}.tar.gz", f"{inside}.tar.xz"), inside, name)

    def load(split: str, root: Path) -> ArrayDataset:
        found = find(split, root)
        if found[0].suffix != ".bin":
            if not sums:  # no member's SHA-256 is known, but that of the whole archive is
                verify_published(found[0], root / name, {archive.name: archive.sha256 or ""}, name)
            records = read_archive(found[0], paths[split], sums)
        else:
            for path in found:
                verify(path, sums.get(path.name), f"delete it and run `torchcaps data fetch {name}`")
            records = read_records(found)
        images = dataset(records, found[0], name, split, classes, labels)
        if len(images) != counts[split]:
            raise DataError(f"{found[0]}: {len(images):,} images in {split}, not {counts[split]:,}; fetch it again")
        return images

    counts = {"train": 50_000, "test": 10_000}
    known = {f"{folder}{file}": digest for file, digest in sums.items() for folder in (f"{inside}/", "")}
    source = DownloadSource(name, (archive,), find, known)
    return DatasetEntry(about, load, counts, "research use; cite Krizhevsky 2009", source)


CIFAR10 = _entry(
    "cifar10",
    "color photographs of 10 classes, 32×32",
    CLASSES_10,
    1,
    FILES_10,
    "cifar-10-batches-bin",
    RemoteFile(
        "cifar-10-binary.tar.gz",
        (f"{SITE}cifar-10-binary.tar.gz",),
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        yields=tuple(f"cifar-10-batches-bin/{file}" for file in (*FILES_10["train"], *FILES_10["test"])),
        unpacked_limit=LIMIT,
    ),
    SUMS_10,
)
CIFAR100 = _entry(
    "cifar100",
    "color photographs of 100 classes, 32×32",
    CLASSES_100,
    2,
    FILES_100,
    "cifar-100-binary",
    RemoteFile(
        "cifar-100-binary.tar.gz",
        (f"{SITE}cifar-100-binary.tar.gz",),
        168_513_733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        yields=("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        unpacked_limit=LIMIT,
    ),
    {},
)
