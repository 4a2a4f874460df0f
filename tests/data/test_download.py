"""Downloads from a server of our own on the loopback interface, which misbehaves as told."""

import hashlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.data.written import packed, put, tarred, zipped
from torchcaps import cli, data
from torchcaps.data import DataError, download
from torchcaps.data.catalog import DatasetEntry, DownloadSource, RemoteFile, recorded_sums
from torchcaps.data.download import WAITS, fetch

CONTENT = os.urandom(3_000_000)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        assert isinstance(server, Server)
        start = 0
        if server.ranges and (wanted := self.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        server.asked.append((self.path, start))
        threading.Event().wait(server.delay)
        if server.answers and (answer := server.answers.pop(0)) != 200:
            if answer:
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()
            self.close_connection = True  # without an answer: the connection is just gone
            return
        content = server.files.get(self.path)
        if content is None or start >= len(content) > 0:
            self.send_response(404 if content is None else 416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else None
        self.wfile.write(content[start:][:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # how many bytes the next answers send before they break off
        self.ranges = True
        self.answers: list[int] = []  # statuses of the next answers; 0 for none at all
        self.delay = 0.0
        self.asked: list[tuple[str, int]] = []

    def handle_error(self, request, client_address):
        pass  # a client that breaks off is part of the game

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """How long was waited: nobody waits here."""
    waited: list[float] = []
    monkeypatch.setattr(download.time, "sleep", waited.append)
    return waited


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(server: Server, name: str, content: bytes, **changes) -> RemoteFile:
    server.files[f"/{name}"] = content
    options = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | changes
    return RemoteFile(name, (server.url(name),), **options)  # pyright: ignore[reportArgumentType]


def source(*files: RemoteFile) -> DownloadSource:
    return DownloadSource("things", files, lambda split, root: ())


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "things").rglob("*"))


def test_a_file_arrives_and_is_not_fetched_twice(server, tmp_path):
    things = source(remote(server, "a.bin", CONTENT))
    seen = []
    assert fetch(things, tmp_path, lambda *report: seen.append(report)) == ["a.bin"]
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [report[1] for report in seen] == sorted(report[1] for report in seen)
    assert fetch(things, tmp_path) == []
    assert left(tmp_path) == ["a.bin"]
    assert server.asked == [("/a.bin", 0)]


def test_a_broken_transfer_goes_on_from_where_it_stopped(server, tmp_path):
    server.cuts = [1_000_000, 500_000]
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert server.asked == [("/a.bin", 0), ("/a.bin", 1_000_000), ("/a.bin", 1_500_000)]


def test_a_transfer_that_keeps_breaking_keeps_its_part_for_the_next_run(server, tmp_path):
    things = source(remote(server, "a.bin", CONTENT))
    server.cuts = [1_000_000, 500_000, 100_000]
    with pytest.raises(DataError, match=r"broke off .* after 1,600,000 bytes.*\nBy hand: on any machine, download"):
        fetch(things, tmp_path)
    assert left(tmp_path) == [".a.bin.part"]  # nothing that looks like data
    fetch(things, tmp_path)
    assert server.asked[-1] == ("/a.bin", 1_600_000)
    assert left(tmp_path) == ["a.bin"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges, server.cuts = False, [1_000_000]
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert server.asked == [("/a.bin", 0), ("/a.bin", 0)]


@pytest.mark.parametrize("part", [b"x" * 1000, b"x" * (len(CONTENT) + 5), b"x" * len(CONTENT)])
def test_a_part_of_something_else_is_thrown_away(server, tmp_path, part):
    put(tmp_path / "things" / ".a.bin.part", part)
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert left(tmp_path) == ["a.bin"]


def test_wrong_contents_leave_nothing(server, tmp_path):
    things = source(remote(server, "a.bin", CONTENT, sha256="0" * 64))
    with pytest.raises(DataError, match="is not the published file"):
        fetch(things, tmp_path)
    assert left(tmp_path) == []


def test_more_bytes_than_published_are_not_taken(server, tmp_path):
    with pytest.raises(DataError, match="sends more than the 1,000 bytes"):
        fetch(source(remote(server, "a.bin", CONTENT, size=1000)), tmp_path)
    assert left(tmp_path) == []


def test_the_next_mirror_is_tried(server, tmp_path):
    file = remote(server, "a.bin", CONTENT)
    mirrored = RemoteFile("a.bin", (server.url("gone"), *file.urls), file.size, file.sha256)
    fetch(source(mirrored), tmp_path)
    assert left(tmp_path) == ["a.bin"]


def test_without_network_the_message_says_what_to_do_by_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a.bin"
        there = RemoteFile("there", (url,), 1)
        files = (there, RemoteFile("a.bin", (url,), 5, "ab" * 32), RemoteFile("b.bin", (f"{url}/b",), 6, "cd" * 32))
        put(tmp_path / "things" / "there", b"1")
        with pytest.raises(DataError) as caught:
            fetch(source(*files), tmp_path)
    lines = str(caught.value).splitlines()
    assert "no connection to 127.0.0.1 (ConnectionError, 3 tries)" in lines[0]
    # Every file that is still lacking is named, not the first one alone.
    assert lines[2:] == [
        f"  {url} (5 bytes, SHA-256 {'ab' * 32}) -> {tmp_path / 'things' / 'a.bin'}",
        f"  {url}/b (6 bytes, SHA-256 {'cd' * 32}) -> {tmp_path / 'things' / 'b.bin'}",
    ]


def test_missing_on_the_server(server, tmp_path):
    file = remote(server, "a.bin", CONTENT)
    server.files.clear()
    with pytest.raises(DataError, match=r"127.0.0.1 answers 404"):
        fetch(source(file), tmp_path)


def test_archives_are_unpacked_recorded_and_removed(server, tmp_path):
    inside = {"in/a": b"1" * 100, "in/b": b"2"}
    files = (
        remote(server, "x.tar.gz", tarred(inside, "gz"), yields=("in/a", "in/b"), unpacked_limit=1000),
        remote(server, "y.zip", zipped({"c": b"3", "d": b"4"}), yields=("c",), unpacked_limit=1000),
        remote(server, "e.mat.gz", packed(b"5" * 50), yields=("e.mat",), unpacked_limit=1000),
    )
    assert fetch(source(*files), tmp_path) == ["x.tar.gz", "y.zip", "e.mat.gz"]
    assert left(tmp_path) == ["SHA256SUMS", "a", "b", "c", "e.mat", "in"]
    sums = recorded_sums(tmp_path / "things")
    assert sums["in/a"] == hashlib.sha256(b"1" * 100).hexdigest()
    assert set(sums) == {"in/a", "in/b", "c", "e.mat"}
    assert fetch(source(*files), tmp_path) == []


def test_an_archive_that_was_brought_by_hand_is_unpacked(server, tmp_path):
    content = zipped({"c": b"3"})
    file = remote(server, "y.zip", content, yields=("c",), unpacked_limit=1000)
    put(tmp_path / "things" / "y.zip", content)
    assert fetch(source(file), tmp_path) == ["y.zip"]
    assert left(tmp_path) == ["SHA256SUMS", "c"]
    assert server.asked == []


def test_the_command_fetches_and_says_so_without_a_terminal(server, tmp_path, monkeypatch, capsys):
    def locate(split: str, root: Path) -> tuple[Path, ...]:
        if not (root / "things" / "a.bin").is_file():
            raise DataError("not here")
        return (root / "things" / "a.bin",)

    things = DownloadSource("things", (remote(server, "a.bin", CONTENT),), locate)
    monkeypatch.setitem(data.DATASETS, "things", DatasetEntry("things", lambda *_: None, {"train": 1}, "free", things))  # pyright: ignore[reportArgumentType]
    command = ["data", "fetch", "things", "--data-dir", str(tmp_path)]
    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    assert "1 files fetched and verified" in out
    assert "terms: free" in out
    assert err == "fetching a.bin, 3,000,000 bytes\n"
    assert cli.main(command) == 0
    assert len(server.asked) == 1


def test_an_archive_that_lacks_a_file(server, tmp_path):
    file = remote(server, "y.zip", zipped({"c": b"3"}), yields=("wanted",), unpacked_limit=1000)
    with pytest.raises(DataError, match="holds no wanted"):
        fetch(source(file), tmp_path)


def test_contents_are_judged_where_no_sum_is_published(server, tmp_path):
    def inspect(path: Path) -> None:
        if path.read_bytes() != CONTENT:
            raise DataError("other contents")

    fetch(source(remote(server, "a.bin", CONTENT, sha256=None, size=None, inspect=inspect)), tmp_path)
    with pytest.raises(DataError, match="other contents"):
        fetch(source(remote(server, "b.bin", b"x", sha256=None, size=None, inspect=inspect)), tmp_path)
    assert left(tmp_path) == ["a.bin"]


def test_leftovers_of_a_killed_process_go(server, tmp_path):
    put(tmp_path / "things" / ".unpacking-1" / "half", b"")
    put(tmp_path / "things" / ".unpacking-2", b"")
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert left(tmp_path) == ["a.bin"]


def test_a_directory_that_cannot_be_written(tmp_path):
    put(tmp_path / "file", b"")
    with pytest.raises(DataError, match="no folder can be there; name another with --data-dir"):
        fetch(source(), tmp_path / "file")
    (tmp_path / "shut").mkdir(mode=0o555)
    with pytest.raises(DataError, match=r"shut/things: is read-only.*name another with --data-dir"):
        fetch(source(), tmp_path / "shut")
    assert list((tmp_path / "shut").iterdir()) == []


@pytest.mark.parametrize("answers", [[0, 0], [503, 429], [0, 500]])
def test_connections_that_break_and_busy_servers_are_tried_again_after_a_wait(server, tmp_path, waits, answers):
    server.answers = list(answers)
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert len(server.asked) == 3
    assert waits == list(WAITS)


def test_what_is_not_there_is_asked_for_once(server, tmp_path, waits):
    server.answers = [404]
    with pytest.raises(DataError, match="answers 404"):
        fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert waits == []


def test_a_server_that_has_nothing_more_is_explained(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "WAITS", ())
    put(tmp_path / "things" / ".a.bin.part", b"x" * (len(CONTENT) + 5))
    with pytest.raises(DataError, match=r"answers 416 .* nothing after the 3,000,005 bytes .* they were deleted"):
        fetch(source(remote(server, "a.bin", CONTENT, size=None)), tmp_path)
    assert left(tmp_path) == []


def test_temporary_files_of_older_versions_go(server, tmp_path):
    put(tmp_path / "things" / "tmpab12_x9z", b"half")
    put(tmp_path / "things" / "tmp-mine.txt", b"whole")
    fetch(source(remote(server, "a.bin", CONTENT)), tmp_path)
    assert left(tmp_path) == ["a.bin", "tmp-mine.txt"]


def test_a_file_brought_by_hand_is_never_deleted(server, tmp_path):
    def inspect(path: Path) -> None:
        raise DataError(f"{path}: other contents")

    put(tmp_path / "things" / "a.bin", b"mine")
    file = remote(server, "a.bin", CONTENT, sha256=None, size=None, inspect=inspect, yields=("b",))
    with pytest.raises(DataError, match="other contents"):
        fetch(source(file), tmp_path)
    assert left(tmp_path) == ["a.bin"]


def test_https_comes_first():
    for name, entry in data.DATASETS.items():
        for file in entry.source.files if entry.source else ():
            assert file.urls[0].startswith("https://"), f"{name}: {file.urls}"
