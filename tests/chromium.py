"""A real Chromium for tests of pages, driven through a pipe by its DevTools protocol: no package is needed for it."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"),
    *("--disable-component-update", "--no-first-run", "--remote-debugging-pipe", "--disable-dev-shm-usage"),
)
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 120.0  # seconds


def find_chromium() -> str | None:
    """The program, if one is installed; TORCHCAPS_CHROMIUM names another."""
    named = os.environ.get("TORCHCAPS_CHROMIUM")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page. ``complaints`` are its errors and warnings, ``requests`` all addresses that it asked for."""

    def __init__(self, program: str, profile: Path) -> None:
        reads, self._write = os.pipe()  # Chromium reads commands from 3 and writes answers to 4
        self._read, writes = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(reads), str(writes), program, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._number, self._rest, self._session = 0, b"", ""
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> "Browser":
        pages = self.ask("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(30)
        os.close(self._read)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come before it are kept."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression in the page is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} did not come true; the page says {self.complaints}"
            time.sleep(0.05)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme: str) -> None:
        """Light or dark."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind: str, x: float, y: float) -> None:
        held = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        self.ask("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y} for x, y in points])

    def press(self, key: str, text: str = "") -> None:
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, text=text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def screenshot(self, path: Path) -> None:
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            assert ready, "Chromium does not answer"
            chunk = os.read(self._read, 1 << 16)
            assert chunk, f"Chromium ended with code {self._process.wait(10)}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        self._keep(message.get("method"), message.get("params", {}))
        return message

    def _keep(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([each.get("value") for each in event["args"]]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
