"""Shows the page: a small web server for this machine alone, since browsers run no WebAssembly from files."""

import functools
import http.server
from pathlib import Path


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".json": "application/json",
        ".onnx": "application/octet-stream",
    }

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


def make_server(folder: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server of the folder's files at 127.0.0.1, at a free port unless one is given; ``serve_forever`` runs it."""
    handler = functools.partial(_Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def address_of(server: http.server.ThreadingHTTPServer) -> str:
    """Where a browser finds the page."""
    return f"http://127.0.0.1:{server.server_address[1]}/"
