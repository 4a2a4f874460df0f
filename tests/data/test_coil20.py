import numpy as np
import pytest

from tests.data.written import png, put, random_bytes, zipped
from torchcaps import data
from torchcaps.data import DataError, coil20


def views(objects: int, count: int) -> dict[str, bytes]:
    return {
        f"coil-20-proc/obj{number + 1}__{view}.png": png(random_bytes(128, 128, seed=number * 100 + view))
        for number in range(objects)
        for view in range(count)
    }


def test_published_files(real):
    real("coil20/coil-20-proc.zip")
    train, test, everything = (data.load("coil20", split) for split in ("train", "test", "all"))
    assert (len(train), len(test), len(everything)) == (720, 720, 1_440)
    assert len(everything.classes) == 20
    assert train[1].metadata["azimuth"] == 10
    assert test[35].metadata["azimuth"] == 355
    assert everything[73].label == 1
    assert (everything[72].image == train[36].image).all()


def test_every_view_goes_to_its_place(tmp_path):
    files = views(2, 3)
    pixels = coil20.read(put(tmp_path / "x.zip", zipped(dict(reversed(files.items())))), objects=2, views=3)
    np.testing.assert_array_equal(pixels[1, 2], random_bytes(128, 128, seed=102))


def test_wrong_archives(tmp_path):
    files = views(2, 2)
    first = next(iter(files))

    def read(changed: dict[str, bytes]) -> np.ndarray:
        return coil20.read(put(tmp_path / "x.zip", zipped(changed)), objects=2, views=2)

    with pytest.raises(DataError, match=r"lacks 1 of 4 views, obj1__0\.png"):
        read({name: content for name, content in files.items() if name != first})
    with pytest.raises(DataError, match="a view too many"):
        read(files | {"coil-20-proc/obj3__0.png": files[first]})
    with pytest.raises(DataError, match="is 64×128, not 128×128"):
        read(files | {first: png(random_bytes(64, 128))})
    with pytest.raises(DataError, match=r"obj1__0\.png: not a whole image"):
        read(files | {first: files[first][:300]})


def test_other_pixels_are_not_coil20(tmp_path):
    put(
        tmp_path / "coil20" / coil20.ARCHIVE,
        zipped({name: png(np.zeros((128, 128), np.uint8)) for name in views(20, 72)}),
    )
    with pytest.raises(DataError, match="of its pixels is not COIL-20's"):
        data.load("coil20", "train", tmp_path)
