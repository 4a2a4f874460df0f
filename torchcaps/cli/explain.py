"""``torchcaps explain``: all figures that apply to a run, with the numbers behind them, and a page that shows them.

For a run on texts there is a page of texts besides: which tokens each class used or credited, at which depth.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from torchcaps.terminal import printable

SENTENCES = 6  # validation texts that are shown where none is given
TOPICS = ("couplings", "reconstruction", "perturbation", "iterations", "viewpoint", "robustness")


@dataclass(frozen=True)
class Explain:
    """See inside a run: what was routed where, what capsules look like decoded, what their numbers do, what each
    iteration of routing changes, how poses follow the viewpoint, and robustness to distortion."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, checkpoint in one, model file, or a pretrained model's name (`torchcaps models`; `shipped` is the one
    with a decoder)."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where figures go; RUN/explain if left out, or explain/NAME for a pretrained model."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TOPIC…")] = ()
    """Only these topics: couplings, reconstruction, perturbation, iterations, viewpoint, robustness."""
    data: str = ""
    """Other data than the run's own: a name from `torchcaps data list`, folder:PATH or arrays:FILE.npz."""
    split: str = "test"
    """Which split of the data."""
    limit: int = 300
    """Examples that accuracies are counted on, evenly over the split."""
    device: str = ""
    """cpu, cuda or cuda:1; a GPU if there is one if left out."""

    text: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT…")] = ()
    """For a run on texts: only this, which tokens of these each class used or credited; validation ones if left out."""

    def run(self) -> int:
        unknown = [topic for topic in self.only if topic not in TOPICS]
        if unknown:
            raise ValueError(f"no topic {unknown[0]!r}; there are {', '.join(TOPICS)}")
        if self.limit < 1:
            raise ValueError(f"accuracies are counted on at least one example; got --limit {self.limit}")
        from torchcaps.lab.evaluation.fitting import open_loader
        from torchcaps.lab.evaluation.subjects import open_model

        if Path(self.run_folder).suffix == ".onnx":
            raise ValueError(f"{self.run_folder}: nobody can look into an ONNX file; give the run that it comes from")
        found = open_model(self.run_folder, device=self.device)
        out = self.out or self._place()
        if self.text:
            print(f"open {write_texts(found, out, self.text)}")
            return 0
        from torchcaps.lab.explanation.gallery import ExplainedModel

        loader, data, remark = open_loader(found, self.data, self.split)
        if remark:
            print(printable(remark))
        name = Path(self.run_folder).stem if found.run is None else found.run.folder.resolve().name
        subject = ExplainedModel(found.model, loader, found.loss, name, data, self.limit)
        page = write_gallery(subject, out, self.only or TOPICS)
        if not self.only and not self.data and found.run is not None and found.run.recipe.is_text:
            try:
                print(f"texts: {write_texts(found, out)}")
            except ValueError as error:
                print(f"texts: left out: {error}")
        print(f"open {page}")
        return 0

    def _place(self) -> Path:
        place = Path(self.run_folder)
        if not place.exists():  # a pretrained model by its name
            return Path("explain", place.name)
        return (place if place.is_dir() else place.parent) / "explain"


def write_texts(subject, out: Path, texts: tuple[str, ...] = ()) -> Path:
    """Write the page of these texts, or of some validation (or test) examples with their labels; its path."""
    run = subject.run
    if run is None or not run.recipe.is_text:
        raise ValueError(f"{subject.name} is no run that was trained on texts; leave --text out for its figures")
    from torchcaps.lab.explanation.text import text_views
    from torchcaps.lab.reports.text_page import write_text_page
    from torchcaps.lab.text import class_names

    classes, labels = class_names(run.recipe), [""] * len(texts)
    if not texts:
        known = run.examples("val" if run.recipe.data.val_size else "test")
        shown = min(SENTENCES, len(known))
        rows = [number * len(known) // shown for number in range(shown)]
        texts = tuple(known.sentences[row] for row in rows)
        labels = [classes[int(known.labels[row])] for row in rows]
    views = text_views(subject.model, run.recipe, texts)
    views = [replace(view, label=label) for view, label in zip(views, labels, strict=True)]
    return write_text_page(out / "texts.html", views, run.recipe.name, classes)


def write_gallery(subject, out: Path, topics: tuple[str, ...]) -> Path:
    """Write the figures of these topics and a page with all of them; the path of the page."""
    from torchcaps.lab.reports.explanation import Explanation, explain_topics

    found = []
    for topic in explain_topics(subject, topics):
        found.append(topic)
        for shown in topic.figures:
            print(printable(f"{topic.name}: {shown.finding or shown.caption}"))
        if topic.missing:
            print(f"{topic.name}: left out: {topic.missing}")
    return Explanation(f"Inside {subject.run}", subject.data, tuple(found)).write(out)
