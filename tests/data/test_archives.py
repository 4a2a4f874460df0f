import io
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.data.written import packed, put, tarred, zipped
from torchcaps.data import DataError, archives, files
from torchcaps.data.archives import members, ungzip, unpack

LIMIT = 1 << 16
NAMES = ["../out", "/etc/out", "a/../../out", "..\\out", "c:out", "a/.."]


def tar_with(info: tarfile.TarInfo, data: bytes = b"") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("pack", [zipped, tarred, lambda files: tarred(files, "gz"), lambda files: tarred(files, "xz")])
def test_whole_archives_come_out_whole(tmp_path, pack):
    files = {"a/one.txt": b"1" * 100, "two": b"", "a/b/three": os.urandom(5000)}
    found = unpack(put(tmp_path / "archive", pack(files)), tmp_path / "out", LIMIT)
    assert {path.relative_to(tmp_path / "out").as_posix(): path.read_bytes() for path in found} == files
    assert not list((tmp_path / "out").glob(".unpacking*"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_names_that_lead_outside(tmp_path, name, pack):
    path = put(tmp_path / "in" / "archive", pack({"good": b"1", name: b"2"}))
    with pytest.raises(DataError, match="leads outside"):
        unpack(path, tmp_path / "in" / "out", LIMIT)
    assert [item.name for item in tmp_path.iterdir()] == ["in"]
    assert list((tmp_path / "in" / "out").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(tmp_path, kind):
    info = tarfile.TarInfo("inner")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match="a link or a device"):
        unpack(put(tmp_path / "x.tar", tar_with(info)), tmp_path / "out", LIMIT)


def test_links_in_zip(tmp_path):
    info = zipfile.ZipInfo("inner")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="a link or a device"):
        unpack(put(tmp_path / "x.zip", file.getvalue()), tmp_path / "out", LIMIT)


@pytest.mark.parametrize("pack", [zipped, tarred, lambda files: tarred(files, "gz"), lambda files: tarred(files, "xz")])
def test_too_many_bytes(tmp_path, pack):
    path = put(tmp_path / "archive", pack({"a": bytes(LIMIT - 10), "b": bytes(20)}))
    with pytest.raises(DataError, match="more than the 65,536 bytes"):
        unpack(path, tmp_path / "out", LIMIT)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_tar_that_hides_its_bytes_in_headers(tmp_path):
    info = tarfile.TarInfo("a")
    info.pax_headers = {"comment": "x" * (8 << 20)}
    path = put(tmp_path / "x.tgz", packed(tar_with(info)))
    with pytest.raises(DataError, match="more than the"):
        list(members(path, LIMIT))


def test_a_zip_whose_sizes_cannot_be(tmp_path):
    good = zipped({"a": b"x" * 50})
    at = good.rindex(b"PK\x01\x02") + 24
    lying = good[:at] + struct.pack("<I", 60_000) + good[at + 4 :]
    with pytest.raises(DataError, match="claims 60,000 bytes that it cannot have"):
        list(members(put(tmp_path / "x.zip", lying), LIMIT))


def test_a_zip_with_overlapping_members(tmp_path):
    good = zipped({"a": os.urandom(1000)})
    at, end = good.rindex(b"PK\x01\x02"), good.rindex(b"PK\x05\x06")
    entry = good[at:end]
    count, size = 9, len(entry) * 9
    tail = bytearray(good[end:])
    tail[8:16] = struct.pack("<HHI", count, count, size)
    with pytest.raises(DataError, match="overlap"):
        list(members(put(tmp_path / "x.zip", good[:at] + entry * count + tail), LIMIT))


def test_unusual_zips(tmp_path):
    with pytest.raises(DataError, match="unusual way"):
        list(members(put(tmp_path / "x.zip", zipped({"a": b"1"}, zipfile.ZIP_LZMA)), LIMIT))
    secret = bytearray(zipped({"a": b"1"}))
    secret[secret.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match="encrypted"):
        list(members(put(tmp_path / "y.zip", bytes(secret)), LIMIT))


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    for pack in (zipped, tarred):
        with pytest.raises(DataError, match="more than 3 members"):
            list(members(put(tmp_path / "x", pack({str(number): b"" for number in range(4)})), LIMIT))


def test_the_same_member_twice(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a"))
    with pytest.raises(DataError, match="the same member twice"):
        unpack(put(tmp_path / "x.tar", file.getvalue()), tmp_path / "out", LIMIT)


@pytest.mark.parametrize("pack", [zipped, tarred, lambda files: tarred(files, "gz"), lambda files: tarred(files, "xz")])
def test_truncated_archives_leave_nothing(tmp_path, pack):
    whole = pack({"a": os.urandom(3000), "b": os.urandom(3000)})
    path = put(tmp_path / "archive", whole[: len(whole) // 2])
    with pytest.raises(DataError, match="archive"):
        unpack(path, tmp_path / "out", LIMIT)
    assert list((tmp_path / "out").iterdir()) == []


def test_corrupt_zip_member(tmp_path):
    whole = bytearray(zipped({"a": os.urandom(3000)}, zipfile.ZIP_STORED))
    whole[500] ^= 1
    with pytest.raises(DataError, match="Bad CRC"):
        unpack(put(tmp_path / "x.zip", bytes(whole)), tmp_path / "out", LIMIT)


def test_ungzip_is_whole_or_nothing(tmp_path):
    content = os.urandom(3000)
    path = put(tmp_path / "x.gz", packed(content))
    assert ungzip(path, tmp_path / "x", LIMIT).read_bytes() == content
    put(path, packed(content)[:-100])
    with pytest.raises(DataError, match="fetch it again"):
        ungzip(path, tmp_path / "y", LIMIT)
    put(path, packed(bytes(LIMIT + 1)))
    with pytest.raises(DataError, match="more than the 65,536 bytes"):
        ungzip(path, tmp_path / "y", LIMIT)
    assert sorted(Path(item).name for item in tmp_path.iterdir()) == ["x", "x.gz"]


def test_an_xz_that_wants_a_huge_dictionary(tmp_path, monkeypatch):
    path = put(tmp_path / "x.tar.xz", tarred({"a": b"1"}, "xz"))  # the usual dictionary, 8 MB
    assert [member.name for member in members(path, LIMIT)] == ["a"]
    monkeypatch.setattr(files, "XZ_MEMORY", 4 << 20)
    with pytest.raises(DataError, match="Memory usage limit"):
        list(members(path, LIMIT))


@pytest.mark.parametrize("names", [("a", "a/b"), ("n" * 300,)])
def test_names_that_no_file_can_have(tmp_path, names):
    path = put(tmp_path / "x.zip", zipped(dict.fromkeys(names, b"1")))
    with pytest.raises(DataError, match=r"x\.zip: (cannot be unpacked|the same member twice)"):
        unpack(path, tmp_path / "out", 1000)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "./."])
def test_members_without_a_name_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("a")
        info.filename = name
        archive.writestr(info, b"1")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    for path in (tmp_path / "a.zip", tmp_path / "a.tar"):
        with pytest.raises(DataError, match=r"a\.(zip|tar): a member is named .*names no file"):
            unpack(path, tmp_path / "out", 1000)
