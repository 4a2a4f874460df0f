"""``torchcaps export``: a trained model as a file for other runtimes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from torchcaps.terminal import printable

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


@dataclass(frozen=True)
class Export:
    """Write a run's model as one file for other runtimes: ONNX, or a program of torch.export."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, a checkpoint in one, a .safetensors file that torchcaps.models.save wrote, or a pretrained model's
    name (`torchcaps models`; `shipped` is the one with a decoder)."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx for onnxruntime and others, torch for torch.export.load."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The file to write; RUN/model.onnx (.pt2) if left out, or beside a model file, or here for a pretrained model."""
    couplings: bool = False
    """Return the couplings of every layer and iteration too."""
    reconstruction: bool = False
    """Return the decoder's image of the likeliest class too."""
    decoder: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the decoder to an ONNX file of its own: poses and the number of a class in, an image out."""

    def run(self) -> int:
        from torchcaps import export
        from torchcaps.export.outputs import require_decoder
        from torchcaps.lab.evaluation.subjects import open_model

        if self.decoder is not None and self.format != "onnx":
            raise ValueError(f"--decoder writes an ONNX file; got --format {self.format}")
        if Path(self.model).suffix in SUFFIXES.values():
            raise ValueError(f"{self.model} is exported already; give the run folder or model file that it comes from")
        subject = open_model(self.model)
        if self.decoder is not None:
            require_decoder(subject.model)  # before minutes are spent
        extra = {"source": subject.title}
        if subject.run is not None and not (subject.run.folder / "model.safetensors").is_file():
            print(f"{self.model} is not finished: this is its best checkpoint, after {subject.step} steps at most")
        out = self.out or self._place()
        chosen = {"couplings": self.couplings, "reconstruction": self.reconstruction, "extra": extra}
        (export.to_onnx if self.format == "onnx" else export.to_torch)(subject.model, out, **chosen)
        print(printable(f"written to {out} ({out.stat().st_size:,} bytes)"))
        if self.decoder is not None:
            export.decoder_to_onnx(subject.model, self.decoder)
            print(printable(f"decoder written to {self.decoder} ({self.decoder.stat().st_size:,} bytes)"))
        if self.format == "onnx" and len(subject.model.image) == 3 and not _reads_texts(subject):
            print(printable(f"try: torchcaps predict {out} IMAGE"))
        return 0

    def _place(self) -> Path:
        place, suffix = Path(self.model), SUFFIXES[self.format]
        if place.is_dir():
            return place / f"model{suffix}"
        return place.with_suffix(suffix) if place.is_file() else Path(f"{place.name}{suffix}")


def _reads_texts(subject) -> bool:
    return subject.run is not None and bool(subject.run.recipe.text.encoder)
