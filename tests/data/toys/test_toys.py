"""The rendered toys: what is in the pictures, that they never change, and how they are kept on disk."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcaps import data
from torchcaps.data import smallnorb
from torchcaps.data.base import ArrayDataset, DataError
from torchcaps.data.files import cache_dir
from torchcaps.data.toys import (
    CATEGORIES,
    INSTANCES,
    Grid,
    build_toy,
    cache_file,
    dataset,
    default_grid,
    find_toys,
    load_toys,
    photograph,
    write_norb,
)
from torchcaps.data.toys.casting import cast
from torchcaps.data.toys.scene import EXTENT, camera_views
from torchcaps.data.toys.solids import ball

TINY = Grid((4, 6), elevations=(0, 8), azimuths=(0, 5), lightings=(0, 3), size=24)
FEW = Grid((0,), elevations=(0,), azimuths=(0,), lightings=(0,), size=16)


def test_the_full_programme_is_smallnorbs() -> None:
    for split, instances in (("train", [4, 6, 7, 8, 9]), ("test", [0, 1, 2, 3, 5])):
        known = default_grid(split).coordinates()
        assert len(known["category"]) == 24_300
        assert torch.equal(torch.bincount(known["category"]), torch.full((5,), 4860))
        assert known["instance"].unique().tolist() == instances
        assert known["elevation"].unique().tolist() == list(range(9))
        assert known["azimuth"].unique().tolist() == list(range(0, 36, 2))
        assert known["lighting"].unique().tolist() == list(range(6))
        assert len(torch.stack(list(known.values()), dim=1).unique(dim=0)) == 24_300
        assert torch.equal(known["category"][:10], torch.arange(10) % 5)
    assert CATEGORIES == ("animal", "human", "airplane", "truck", "car")
    assert sorted(INSTANCES["train"] + INSTANCES["test"]) == list(range(10))


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_toy_is_whole_in_the_picture_and_unlike_the_others(category: str) -> None:
    angles = torch.tensor([30.0, 70.0], dtype=torch.float64)
    shapes = []
    for instance in range(10):
        solids = build_toy(category, instance)
        target = torch.tensor([0.0, 0.0, max(float(solid.center[2]) for solid in solids) / 2], dtype=torch.float64)
        masks = [cast(solids, camera_views(turn, angles, target), 48, EXTENT, -1.0).paint >= 0 for turn in (0.0, 50.0)]
        seen = torch.cat(masks)
        assert 0.04 < float(seen.float().mean()) < 0.7
        shapes.append(seen)
    for first in range(10):
        for second in range(first):
            assert (shapes[first] != shapes[second]).float().mean() > 0.01


@pytest.mark.parametrize("category", CATEGORIES)
def test_no_toy_touches_the_edge(category: str) -> None:
    for instance in range(10):
        solids = build_toy(category, instance)
        top = max(float((solid.center + solid.support(torch.eye(3, dtype=torch.float64)))[2]) for solid in solids)
        target = torch.tensor([0.0, 0.0, top / 2], dtype=torch.float64)
        views = camera_views(20.0 * instance, torch.arange(30.0, 71.0, 20.0, dtype=torch.float64), target)
        edge = cast(solids, views, 48, EXTENT, -1.0).paint
        for side in (edge[:, 0], edge[:, -1], edge[:, :, 0], edge[:, :, -1]):
            assert (side < 0).all()


def test_lighting_changes_more_than_brightness() -> None:
    for category in CATEGORIES:
        pictures = photograph(build_toy(category, 4), elevations=(1,), azimuths=(2,), size=48)[0, 0, :, 0].double()
        flat = pictures.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
        alike = flat @ flat.T / flat.shape[1]
        assert (alike - torch.eye(6)).max() < 0.985, "two lightings differ by brightness and contrast alone"
        assert pictures.min() < 90
        assert pictures.max() > 150


def test_stereo_sees_near_things_shifted_to_the_right_in_the_left_picture() -> None:
    target = torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64)
    views = camera_views(0.0, torch.tensor([30.0, 70.0], dtype=torch.float64), target)
    for depth, sign in ((-0.5, 1), (0.5, -1)):
        for k in (0, 1):
            middle = (views.forward[2 * k] + views.forward[2 * k + 1]) / 2
            x, y, z = (target + depth * middle).tolist()
            pair = cast(
                [ball((x, y, z + 3), 0.1, 1.0)],
                views._replace(target=target + target.new_tensor([0, 0, 3.0])),
                96,
                1.0,
                0.0,
            )
            columns = torch.arange(96.0)
            left, right = (
                (pair.paint[2 * k + eye].sum(0) * columns).sum() / pair.paint[2 * k + eye].sum() for eye in (0, 1)
            )
            rows = [(pair.paint[2 * k + eye].sum(1) * columns).sum() / pair.paint[2 * k + eye].sum() for eye in (0, 1)]
            assert sign * float(left - right) > 2.0
            assert float(rows[0] - rows[1]) == pytest.approx(0.0, abs=0.3)


def test_azimuth_turns_the_toy_and_elevation_lifts_the_camera() -> None:
    def outline(category: str, azimuth: float) -> tuple[list[int], list[int]]:
        """Rows and columns that the toy covers from 30° and from 70°."""
        views = camera_views(azimuth, torch.tensor([30.0, 70.0], dtype=torch.float64), torch.zeros(3).double())
        seen = cast(build_toy(category, 1), views, 96, 2.5, -1.0).paint[::2] >= 0
        return seen.any(2).sum(1).tolist(), seen.any(1).sum(1).tolist()

    # A human is tall from the side and short from above; a car is wide from its side and narrow from the front.
    rows, _ = outline("human", 0.0)
    assert rows[0] > rows[1] + 8
    _, front = outline("car", 0.0)
    _, side = outline("car", 90.0)
    assert side[0] > front[0] + 10


# Mean gray of five pictures. They may differ by a rounding between processors, not by more: if this fails because the
# pictures were changed on purpose, put the new means here and raise ``dataset.VERSION``, or caches serve the old ones.
MEANS = {"animal": 161.42, "human": 159.23, "airplane": 168.85, "truck": 145.35, "car": 151.95}


@pytest.mark.parametrize("category", CATEGORIES)
def test_pictures_stay_what_they_are(category: str) -> None:
    picture = photograph(build_toy(category, 7), elevations=(3,), azimuths=(4,), lightings=(1,))
    assert float(picture.double().mean()) == pytest.approx(MEANS[category], abs=0.05)


def test_a_picture_does_not_depend_on_its_company() -> None:
    toy = build_toy("truck", 2)
    many = photograph(toy, elevations=(0, 4, 8), azimuths=(3, 12), size=32)
    one = photograph(toy, elevations=(4,), azimuths=(12,), lightings=(5,), size=32)
    assert torch.equal(many[1, 1, 5], one[0, 0, 0])


def test_seed_varies_the_toys() -> None:
    chosen = {"elevations": (0,), "azimuths": (2,), "lightings": (0,)}
    pictures = [photograph(build_toy("car", 0, seed), size=32, **chosen) for seed in (0, 0, 1)]
    assert torch.equal(pictures[0], pictures[1])
    assert not torch.equal(pictures[0], pictures[2])


def test_unknown_toys_are_named() -> None:
    with pytest.raises(ValueError, match="animal, human, airplane, truck, car; got 'boat'"):
        build_toy("boat", 0)
    with pytest.raises(ValueError, match="instances 0 to 9; got 10"):
        build_toy("car", 10)
    with pytest.raises(ValueError, match="train and test; got 'valid'"):
        default_grid("valid")
    with pytest.raises(ValueError, match=r"azimuths are some of 0 to 17; got \(18,\)"):
        Grid((0,), azimuths=(18,))


def test_load_renders_once_and_maps_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    threads = torch.get_num_threads()
    first = load_toys("train", tmp_path, grid=TINY, workers=2, progress=lambda done, total: told.append((done, total)))
    assert torch.get_num_threads() == threads
    assert told[-1] == (80, 80)
    assert sorted(told) == told
    assert first.images.shape == (80, 2, 24, 24)
    assert first.images.dtype == torch.uint8
    assert first.classes == CATEGORIES
    monkeypatch.setattr(dataset, "render", None)
    again = load_toys("train", tmp_path, grid=TINY)
    assert torch.equal(first.images, again.images)
    batch = again.batch(torch.tensor([37, 2]))
    assert batch.image.shape == (2, 2, 24, 24)
    # Example 37 is (instance 0, elevation 1, azimuth 1, lighting 1, category 2) of the grid, by its mixed-radix digits.
    assert {key: int(value[0]) for key, value in batch.metadata.items()} == {
        "instance": 4, "elevation": 8, "azimuth": 10, "lighting": 3,
    }  # fmt: skip
    assert batch.label.tolist() == [2, 2]
    expected = photograph(build_toy("airplane", 4), elevations=(8,), azimuths=(5,), lightings=(3,), size=24)
    torch.testing.assert_close(batch.image[0], expected[0, 0, 0].float() / 255.0)
    # The mapped file is safe from its readers.
    again.images[0] = 0
    assert torch.equal(load_toys("train", tmp_path, grid=TINY).images, first.images)


def test_an_interrupted_rendering_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dataset, "photograph", fail)
    with pytest.raises(KeyboardInterrupt):
        load_toys("train", tmp_path, grid=TINY, workers=1)
    assert list((tmp_path / "toys").rglob("*")) == []


def test_a_damaged_cache_is_named_with_its_remedy(tmp_path: Path) -> None:
    file = cache_file(tmp_path, "train", TINY, 0)
    file.parent.mkdir()
    whole = np.zeros((80, 2, 24, 24), dtype=np.uint8)
    np.save(file, whole)
    data = file.read_bytes()
    for damaged in (data[: len(data) // 2], data[:20], b"", b"not numpy at all", data.replace(b"|u1", b"|O ")):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train-[0-9a-f]+\.npy:.*; delete it, and the toys are rendered again"):
            load_toys("train", tmp_path, grid=TINY)
    np.save(file, whole[:40])
    with pytest.raises(DataError, match=r"shape \(40, 2, 24, 24\), not uint8 of \(80, 2, 24, 24\)"):
        load_toys("train", tmp_path, grid=TINY)


def test_a_read_only_data_directory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    first = load_toys("test", shut, grid=FEW)
    assert list(shut.iterdir()) == []
    assert find_toys("test", shut, FEW) == cache_file(cache_dir(), "test", FEW, 0)
    monkeypatch.setattr(dataset, "render", None)
    assert torch.equal(load_toys("test", shut, grid=FEW).images, first.images)
    # Where nothing can be written at all, the message says so.
    (tmp_path / "cache" / "torchcaps").rename(tmp_path / "away")
    (tmp_path / "cache").chmod(0o555)
    with pytest.raises(DataError, match=r"is read-only.*name another with --data-dir"):
        load_toys("test", shut, grid=FEW)
    (tmp_path / "cache").chmod(0o755)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with toys in it."""
    root = tmp_path_factory.mktemp("rendered")
    for split in INSTANCES:
        load_toys(split, root, grid=TINY)
    return root


def read_norb(file: Path) -> Tensor:
    """A reader of its own for smallNORB's format, from the format's description."""
    data = file.read_bytes()
    magic, ndim = struct.unpack_from("<ii", data)
    stored = struct.unpack_from(f"<{max(3, ndim)}i", data, 8)
    dtype = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}[magic]
    assert all(extra == 1 for extra in stored[ndim:])
    values = np.frombuffer(data, dtype, offset=8 + 4 * len(stored)).copy()
    return torch.from_numpy(values.reshape(stored[:ndim]))


def test_smallnorb_files_read_back(rendered: Path, tmp_path: Path) -> None:
    toys = load_toys("test", rendered, grid=TINY)
    files = write_norb(toys, tmp_path / "norb")
    assert [file.name for file in files.values()] == [
        f"smallnorb-5x01235x9x18x6x2x96x96-testing-{kind}.mat" for kind in ("dat", "cat", "info")
    ]
    assert torch.equal(read_norb(files["dat"]), toys.images)
    assert torch.equal(read_norb(files["cat"]).long(), toys.labels)
    info = read_norb(files["info"]).long()
    for column, key in enumerate(("instance", "elevation", "azimuth", "lighting")):
        assert torch.equal(info[:, column], toys.metadata[key])
    # The category file has one dimension and stores three, as the official one does.
    assert struct.unpack("<5i", files["cat"].read_bytes()[:20]) == (0x1E3D4C54, 1, 80, 1, 1)
    assert sorted(path.name for path in (tmp_path / "norb").iterdir()) == sorted(file.name for file in files.values())


@pytest.mark.parametrize("split", ["train", "test"])
def test_toys_go_through_smallnorbs_files_and_its_reader(split: str, rendered: Path, tmp_path: Path) -> None:
    toys = load_toys(split, rendered, grid=TINY)
    files = write_norb(toys, tmp_path / "smallnorb")
    packed = {kind: tmp_path / f"{kind}.mat.gz" for kind in files}
    for kind, file in files.items():
        packed[kind].write_bytes(gzip.compress(file.read_bytes()))
    plain = data.load("smallnorb", split, tmp_path)
    gz = smallnorb.read(packed["dat"], packed["cat"], packed["info"], split)
    every = torch.arange(len(toys))
    expected = toys.batch(every)
    for read in (plain, gz):
        assert (len(read), read.classes, read.split) == (80, toys.classes, split)
        found = read.batch(every)
        assert torch.equal(found.image, expected.image)
        assert torch.equal(found.label, expected.label)
        assert found.metadata.keys() == expected.metadata.keys()
        assert all(torch.equal(found.metadata[key], value) for key, value in expected.metadata.items())
    # Under the official name a packed file is held to the published sum: toys are never taken for smallNORB.
    for kind, file in files.items():
        packed[kind].rename(file.with_name(f"{file.name}.gz"))
        file.unlink()
    with pytest.raises(DataError, match="is not the published"):
        data.load("smallnorb", split, tmp_path)


def test_only_stereo_pairs_become_smallnorb(tmp_path: Path) -> None:
    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"stereo pairs are uint8 .*\(3, 1, 8, 8\)"):
        write_norb(ArrayDataset("x", "train", ("a",), images, torch.zeros(3, dtype=torch.int64)), tmp_path)
    pairs = ArrayDataset("x", "train", ("a",), images.expand(3, 2, 8, 8), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="there is no instance, elevation"):
        write_norb(pairs, tmp_path)
    with pytest.raises(ValueError, match="train and test; got 'valid'"):
        write_norb(ArrayDataset("x", "valid", ("a",), images, torch.zeros(3, dtype=torch.int64)), tmp_path)
