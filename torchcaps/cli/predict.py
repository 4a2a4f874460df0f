"""``torchcaps predict``: what a model says of a user's own images or texts."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from torchcaps.data import DataError
from torchcaps.lab.evaluation.fitting import class_count
from torchcaps.lab.evaluation.own_images import Guess, example_of, guess, wanted_shape
from torchcaps.lab.evaluation.subjects import open_model
from torchcaps.terminal import printable

BRIGHT, DARK = 0.6, 0.3  # mean brightness beyond which an image is called bright or dark


@dataclass(frozen=True)
class Predict:
    """Predict the classes of image files (PNG, JPEG, GIF, TIFF, WebP, BMP, PGM or PPM), or of texts."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, a checkpoint in one, a .safetensors file that torchcaps.models.save wrote, an .onnx file that
    `torchcaps export` wrote, or a pretrained model's name (`torchcaps models`; `shipped` is the most accurate)."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE…")] = ()
    """Image files of any size."""
    text: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT…")] = ()
    """Texts, each in quotes, for a run that was trained on texts."""
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a page that shows which words each class used, at which depth of the language model."""
    top: int = 3
    """How many classes to print for each image."""
    invert: bool = False
    """Swap dark and bright first: for dark strokes on paper, where the model was trained on bright ones."""
    fit: bool = False
    """For photos of digits: stretch contrast, crop the strokes and center them, bright on black as MNIST has them."""
    threshold: float = 0.5
    """Probability of the likeliest class below which no class is named; 0 always names one."""
    json: bool = False
    """Print JSON, all classes of every image."""
    device: str = ""
    """cpu, cuda or cuda:1; a GPU if there is one if left out."""

    def run(self) -> int:
        if self.top < 1:
            raise ValueError(f"--top {self.top}: print at least one class")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"--threshold {self.threshold}: a probability is from 0 to 1")
        if self.fit and self.invert:
            raise ValueError("--fit finds out whether strokes are dark or bright; leave --invert out")
        if self.text:
            return self._texts()
        if not self.images:
            raise ValueError('name at least one image file, or a text: torchcaps predict RUN IMAGE, or --text "…"')
        subject = open_model(self.model, device=self.device)
        if subject.run is not None and subject.run.recipe.is_text:
            raise ValueError(f'{self.model} was trained on texts; give it one: --text "…"')
        shape = wanted_shape(subject)
        classes = subject.classes or tuple(map(str, range(class_count(subject))))
        found: dict[Path, Guess] = {}
        failed = False
        for path in self.images:
            try:
                options = {"invert": self.invert, "fit": self.fit, "threshold": self.threshold}
                found[path] = guess(subject, path, shape, classes, **options)
            except (DataError, OSError) as error:
                failed = True
                print(f"torchcaps: {printable(error)}", file=sys.stderr)
                continue
            if not self.json:
                self._print(path, found[path])
        if self.json:
            print(json.dumps([_as_json(path, each) for path, each in found.items()], indent=1))
        example = example_of(subject)
        if found and example is not None and not self.invert and not self.fit:
            mean = sum(each.brightness for each in found.values()) / len(found)
            if mean > BRIGHT and float(example.mean()) < DARK:
                remedy = "--fit for photos of digits, or --invert" if shape[0] == 1 else "--invert"
                print(f"hint: these images are bright and the training images dark; try {remedy}", file=sys.stderr)
        return 2 if failed else 0

    def _texts(self) -> int:
        """What a run makes of texts."""
        from torchcaps.lab.text import class_names, predict_with  # language models are heavy to import

        if self.images:
            raise ValueError(f"{self.images[0]} is an image and --text gives a text; ask for one kind at a time")
        subject = open_model(self.model, device=self.device)
        if subject.run is None or not subject.run.recipe.is_text:
            raise ValueError(f"{self.model} is no run that was trained on texts; give it image files")
        recipe = subject.run.recipe
        found = predict_with(subject.model, recipe, self.text, say=lambda note: print(note, file=sys.stderr))
        if self.json:
            print(json.dumps([each._asdict() for each in found], indent=1, ensure_ascii=False))
        else:
            for each in found:
                ranked = sorted(each.probability.items(), key=lambda pair: -pair[1])[: self.top]
                said = ", ".join(f"{name} {100 * chance:.1f} %" for name, chance in ranked)
                print(printable(f"{each.text!r}: {each.label}   ({said})"))
        if self.html is not None:
            from torchcaps.lab.explanation.text import text_views
            from torchcaps.lab.reports.text_page import write_text_page

            views = text_views(subject.model, recipe, self.text)
            write_text_page(self.html, views, recipe.name, class_names(recipe))
            print(f"written to {self.html}", file=sys.stderr)
        return 0

    def _print(self, path: Path, guessed: Guess) -> None:
        said = ", ".join(f"{name} {100 * chance:.1f} %" for name, chance in guessed.ranked[: self.top])
        chosen = " + ".join(guessed.present) or "no class is likely"
        changes = f"   [{'; '.join(guessed.changes)}]" if guessed.changes else ""
        print(printable(f"{path}: {chosen}   ({said}){changes}"))


def _as_json(path: Path, guessed: Guess) -> dict:
    return {
        "image": str(path),
        "classes": list(guessed.present),
        "presence": dict(guessed.ranked),
        "changes": list(guessed.changes),
    }
