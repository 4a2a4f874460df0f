"""``torchcaps demo``: a page that runs a trained network in the browser."""

import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from torchcaps.terminal import printable


@dataclass(frozen=True)
class Demo:
    """Draw, and see what a network makes of it: a page that runs in the browser, by itself and offline."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = "shipped"
    """A run folder, a checkpoint in one, a .safetensors file that torchcaps.models.save wrote, or a pretrained model's
    name (`torchcaps models`; `shipped` is the one with a decoder)."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Just write the page into this folder, ready for any web host."""
    runtime: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Package folder or tarball of onnxruntime-web; npm fetches it once if left out."""
    port: int = 0
    """Port of 127.0.0.1 to serve the page at; any that is free if 0."""
    browser: bool = True
    """Open the page in a browser."""

    def run(self) -> int:
        from torchcaps.lab.demo import write_demo
        from torchcaps.lab.evaluation.subjects import open_model

        if not 0 <= self.port < 1 << 16:
            raise ValueError(f"--port {self.port}: a port is from 0 to 65535")
        if Path(self.model).suffix == ".onnx":
            raise ValueError(f"{self.model}: the page shows what is inside; give the run that this file comes from")
        subject = open_model(self.model)
        if subject.run is not None and not (subject.run.folder / "model.safetensors").is_file():
            print(f"{self.model} is not finished: this is its best checkpoint so far", file=sys.stderr)
        if self.out is not None:
            write_demo(subject, self.out, self.runtime)
            size = sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
            print(printable(f"written to {self.out} ({size / 1e6:.1f} MB); any web server shows it"))
            return 0
        with tempfile.TemporaryDirectory(prefix="torchcaps-demo-") as folder:
            print("writing the page …", file=sys.stderr)
            write_demo(subject, Path(folder), self.runtime)
            self._serve(Path(folder))
        return 0

    def _serve(self, folder: Path) -> None:
        from torchcaps.lab.demo.serving import address_of, make_server

        with make_server(folder, self.port) as server:
            print(f"open {address_of(server)} (stop with Ctrl+C)", flush=True)
            if self.browser:
                webbrowser.open(address_of(server))
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()
