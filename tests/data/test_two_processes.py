"""Two real processes that want the same dataset at the same moment: one does the work, the other waits and finds it."""

import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.pool import Pool
from pathlib import Path

import pytest

from torchcaps.data.catalog import DownloadSource, RemoteFile
from torchcaps.data.download import fetch
from torchcaps.data.toys import Grid, cache_file, dataset, load_toys

TINY = Grid((4, 6), elevations=(0, 8), azimuths=(0,), lightings=(0, 3), size=24)
CONTENT = os.urandom(300_000)
both_ready: threading.Barrier


def _keep(barrier: threading.Barrier) -> None:
    global both_ready  # a barrier can only be handed over when a process starts
    both_ready = barrier


def _together(work: Callable[..., object], *arguments: object) -> object:
    both_ready.wait(60)  # the library is imported in both: now they really start together
    return work(*arguments)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pool]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, _keep, (context.Barrier(2),)) as pool:
        yield pool


def at_once(pair: Pool, work: Callable[..., object], *arguments: object) -> list[object]:
    return pair.starmap(_together, [(work, *arguments)] * 2, chunksize=1)


def _render(root: Path) -> int:
    toys_made: list[int] = []
    load_toys("train", root, grid=TINY, workers=1, progress=lambda done, total: toys_made.append(done))
    return len(toys_made)


def test_rendering(pair: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(at_once(pair, _render, tmp_path)) == {0, 10}  # toys are made once, not twice
    left = {path.name for path in (tmp_path / "toys").iterdir()}
    assert left == {cache_file(tmp_path, "train", TINY, 0).name, "SHA256SUMS"}
    monkeypatch.setattr(dataset, "render", None)
    assert len(load_toys("train", tmp_path, grid=TINY)) == 40


class Slow(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Slow.asked += 1
        time.sleep(0.5)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _fetch(url: str, size: int, digest: str, root: Path) -> str:
    os.environ["NO_PROXY"] = "*"
    file = RemoteFile("a.bin", (url,), size, digest)
    return " ".join(fetch(DownloadSource("things", (file,), lambda split, root: ()), root))


def test_fetching(pair: Pool, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        # The content differs from process to process, so its sum is handed over.
        digest = hashlib.sha256(CONTENT).hexdigest()
        results = at_once(pair, _fetch, f"http://127.0.0.1:{server.server_port}/a.bin", len(CONTENT), digest, tmp_path)
        server.shutdown()
        thread.join()
    assert set(results) == {"", "a.bin"}
    assert Slow.asked == 1
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "things").iterdir()] == ["a.bin"]
