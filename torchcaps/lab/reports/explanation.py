"""What the figures of a network say, as one page, or as an object that a notebook displays."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from torchcaps.lab.explanation import gallery
from torchcaps.lab.explanation.figures import render, save_figure
from torchcaps.lab.explanation.gallery import ExplainedModel, TopicFigure
from torchcaps.lab.explanation.records import class_names
from torchcaps.lab.loaders import ModelBatch
from torchcaps.lab.reports.page import absent, contents, figure, page, section, svg_source, write
from torchcaps.lab.tracing.networks import describe, evaluating, require_capsules
from torchcaps.losses import CrossEntropyLoss

HEADINGS = {"iterations": "Routing iterations"}
FILES = {"svg": "SVG", "png": "PNG", "npz": "numbers"}
PIECE = 64  # inputs that are predicted at a time
NOTEBOOK = "max-width:100%;height:auto;background:#fff"


@dataclass(frozen=True)
class Topic:
    """The figures of one topic; ``missing`` says why there are none, or no more of them."""

    name: str
    figures: tuple[TopicFigure, ...]
    missing: str = ""

    @property
    def heading(self) -> str:
        return HEADINGS.get(self.name, self.name.capitalize())


@dataclass(frozen=True)
class Explanation:
    """All figures of a network, by topic, with the numbers behind them. A notebook displays it; ``write`` makes a page
    of it."""

    title: str
    data: str
    topics: tuple[Topic, ...]

    @property
    def figures(self) -> tuple[TopicFigure, ...]:
        return tuple(itertools.chain.from_iterable(topic.figures for topic in self.topics))

    def write(self, folder: str | Path) -> Path:
        """Write every figure as PNG, SVG and NPZ into a folder, and a page that shows them; the path of the page."""
        folder = Path(folder)
        for shown in self.figures:
            save_figure(shown.figure, folder, shown.name, shown.record)
        return write(folder / "index.html", self.page())

    def page(self) -> str:
        """The page, which refers to the files that ``write`` puts beside it."""
        head = f"<header><h1>{escape(self.title)}</h1><p class=faint>examples of {escape(self.data)}</p></header>"
        parts = [head, contents(topic.heading for topic in self.topics), *map(_section, self.topics)]
        if not self.figures:
            parts.append("<p>None of the figures applies.</p>")
        return page(self.title, parts)

    def _repr_html_(self) -> str:
        """All figures inside one piece of HTML, as notebooks want it."""
        parts = [f"<h2>{escape(self.title)}</h2><p>examples of {escape(self.data)}</p>"]
        for topic in self.topics:
            parts.append(f"<h3>{escape(topic.heading)}</h3>")
            for shown in topic.figures:
                source = svg_source(render(shown.figure, "svg"))
                parts.append(f'<img style="{NOTEBOOK}" src="{source}" alt="{escape(shown.caption)}">')
                parts.append(f"<p>{escape(shown.caption)} {escape(shown.finding)}</p>")
            if topic.missing:
                parts.append(f"<p><i>Left out: {escape(topic.missing)}.</i></p>")
        return f"<div>{''.join(parts)}</div>"


class TensorLoader:
    """Inputs and labels that are already tensors."""

    def __init__(self, inputs: Tensor, labels: Tensor, classes: Sequence[str]) -> None:
        self.inputs, self.labels, self.classes = inputs, labels, tuple(classes)

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor, generator: Generator | None = None) -> ModelBatch:
        label = self.labels[indices.to(self.labels.device)]
        inputs = self.inputs[indices.to(self.inputs.device)]
        return ModelBatch((inputs,), label, label, inputs if inputs.ndim == 4 else None)


@torch.no_grad()
def explain(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor | None = None,
    classes: Sequence[str] | None = None,
    *,
    topics: Sequence[str] = tuple(gallery.TOPICS),
    limit: int = 300,
) -> Explanation:
    """See inside any module that contains capsule layers.

    Args:
        model: a network of the registry, or any module with ``DenseCapsules``, ``ConvCapsules`` or ``ClassCapsules``.
        inputs: a batch as the module takes it.
        labels: a class number for each input; the network's own predictions if left out.
        classes: names of the classes; their numbers if left out.
        topics: some of couplings, reconstruction, perturbation, iterations, viewpoint, robustness.
        limit: examples that accuracies are counted on.

    Returns:
        All figures that apply, which a notebook displays; ``write(folder)`` makes a page of them.

    Example:
        >>> import torchcaps as tc
        >>> net = nn.Sequential(tc.SquashedPrimaryCapsules(4, 2, 8), tc.ClassCapsules(2, 8, 3, 8, "dynamic"))
        >>> found = explain(net, torch.rand(4, 4, 12, 12), topics=["couplings"])
        >>> [shown.name for shown in found.figures]
        ['couplings-1', 'couplings-2', 'coupling-graph', 'coupling-entropy']
    """
    net = require_capsules(model)
    if not len(inputs):
        raise ValueError("no inputs to explain; give a batch of at least one")
    if labels is not None and len(labels) != len(inputs):
        raise ValueError(f"{len(labels)} labels for {len(inputs)} inputs; give one for each")
    with evaluating(net):
        logits = torch.cat([net(part).logits for part in inputs.split(PIECE)])
    about = "example" if len(inputs) == 1 else "examples"
    data = f"{len(inputs)} {about}" + ("" if labels is not None else ", labels as predicted")
    labels = logits.argmax(-1) if labels is None else labels
    loader = TensorLoader(inputs, labels, class_names(classes, logits.shape[-1]))
    return explain_subject(ExplainedModel(net, loader, CrossEntropyLoss(), describe(model), data, limit), topics)


def explain_topics(subject: ExplainedModel, topics: Sequence[str] = tuple(gallery.TOPICS)) -> Iterator[Topic]:
    """The topics one after the other, since each takes a while."""
    unknown = [topic for topic in topics if topic not in gallery.TOPICS]
    if unknown:
        raise ValueError(f"no topic {unknown[0]!r}; there are {', '.join(gallery.TOPICS)}")
    for name in topics:
        figures: list[TopicFigure] = []
        missing = ""
        try:
            for shown in gallery.TOPICS[name](subject):
                figures.append(shown)  # one by one: what came before an error stays
        except ValueError as error:  # how a measurement says that it does not apply
            missing = str(error)
        yield Topic(name, tuple(figures), missing)


def explain_subject(subject: ExplainedModel, topics: Sequence[str] = tuple(gallery.TOPICS)) -> Explanation:
    """All figures of these topics that apply."""
    return Explanation(f"Inside {subject.run}", subject.data, tuple(explain_topics(subject, topics)))


def _section(topic: Topic) -> str:
    if not topic.figures:
        return absent(topic.heading, f"{topic.missing}.")
    parts = [_figure(shown) for shown in topic.figures]
    if topic.missing:
        parts.append(f'<p class="absent">Further figures left out: {escape(topic.missing)}.</p>')
    return section(topic.heading, "", *parts)


def _figure(shown: TopicFigure) -> str:
    finding = f'<p class="finding">{escape(shown.finding)}</p>' if shown.finding else ""
    files = ", ".join(f'<a href="{shown.name}.{end}">{words}</a>' for end, words in FILES.items())
    return figure(f"{shown.name}.svg", shown.caption, f"{finding}{escape(shown.caption)} {files}")
