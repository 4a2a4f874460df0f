"""How accuracy falls when images are distorted or attacked, for one network or several side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.data import Dataset
from torchcaps.data.base import SomeExamples, choose_evenly
from torchcaps.lab.evaluation import evaluate, shares_over_seeds
from torchcaps.lab.explanation.distortions import DISTORTIONS, Attack, attack, distort, distorted_loader
from torchcaps.lab.explanation.figures import (
    COLORS,
    FAINT,
    INK,
    MARKERS,
    drawing,
    grid_of_panels,
    legend_below,
    new_figure,
)
from torchcaps.lab.explanation.records import FigureRecord
from torchcaps.lab.explanation.viewpoint import metadata_of
from torchcaps.lab.loaders import ImageLoader, Loader, Subset
from torchcaps.lab.tracing.networks import evaluating
from torchcaps.lab.training.scoring import interval
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model
from torchcaps.models.base import device_of

ATTACKS: tuple[Attack, ...] = ("fgsm", "pgd")
EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
EQUAL = 0.01  # accuracies on clean images that differ by less count as equal


@dataclass(frozen=True)
class Robustness(FigureRecord):
    """Right answers of one network: for each kind of distortion (or attack) and each amount, ``correct`` of
    ``total``; ``clean`` of ``total`` where nothing is done."""

    name: str
    kinds: tuple[str, ...]
    units: tuple[str, ...]
    amounts: tuple[Float[np.ndarray, "_"], ...]
    correct: tuple[Int[np.ndarray, "_"], ...]
    clean: int
    total: int

    def accuracy(self, kind: str) -> Float[np.ndarray, "amount"]:
        if kind not in self.kinds:
            raise ValueError(f"{kind!r} was not measured; there are {', '.join(self.kinds)}")
        return self.correct[self.kinds.index(kind)] / self.total


def measure_robustness(
    model: Model,
    loader: Loader,
    loss: ClassificationLoss,
    *,
    name: str = "",
    kinds: Sequence[str] = tuple(DISTORTIONS),
    amounts: Mapping[str, Sequence[float]] | None = None,
    limit: int = 500,
    batch_size: int = 100,
) -> Robustness:
    """Accuracy on up to ``limit`` examples, evenly over the loader, under each distortion and amount."""
    indices = choose_evenly(limit, len(loader))
    chosen = {kind: (amounts or {}).get(kind, DISTORTIONS[kind].amounts) for kind in kinds if kind in DISTORTIONS}
    unknown = [kind for kind in kinds if kind not in DISTORTIONS]
    if unknown:
        raise ValueError(f"no distortion {unknown[0]!r}; there are {', '.join(DISTORTIONS)}")

    def right(given: Loader) -> int:
        return evaluate(model, given, loss, batch_size=batch_size, indices=indices).correct

    clean = right(loader)
    correct = []
    for kind, tried in chosen.items():
        rest = DISTORTIONS[kind].rest
        correct.append([clean if a == rest else right(distorted_loader(loader, _changer(kind, a))) for a in tried])
    units = tuple(DISTORTIONS[kind].unit for kind in chosen)
    return _record(name, chosen, units, correct, clean, len(indices))


def _changer(kind: str, amount: float) -> Callable[[Tensor], Tensor]:
    return lambda images: distort(images, kind, amount)


def measure_attacks(
    model: Model,
    loader: Loader,
    loss: ClassificationLoss,
    *,
    name: str = "",
    epsilons: Sequence[float] = EPSILONS,
    methods: Sequence[Attack] = ATTACKS,
    steps: int = 10,
    limit: int = 200,
    batch_size: int = 50,
) -> Robustness:
    """Accuracy under attacks that move no pixel by more than eps. Pixels go from 0 to 1: where a loader standardizes or
    normalizes, that is taken for a part of the network."""
    indices = choose_evenly(limit, len(loader))
    scaled, prepared = with_scaling(model, loader)
    correct = np.zeros((len(methods), len(epsilons)), np.int64)
    clean = 0
    for part in indices.split(batch_size):
        batch = loader.batch(part)
        image = prepared(part)
        clean += _count(scaled, image, batch.label, loss)
        for m, method in enumerate(methods):
            for e, eps in enumerate(epsilons):
                moved = attack(scaled, image, batch.label, eps=eps, method=method, steps=steps)
                correct[m, e] += _count(scaled, moved, batch.label, loss)
    chosen = dict.fromkeys(methods, epsilons)
    units = ("largest change of a pixel",) * len(chosen)
    return _record(name, chosen, units, correct.tolist(), clean, len(indices))


def _record(
    name: str,
    chosen: dict[str, Sequence[float]] | dict[Attack, Sequence[float]],
    units: tuple[str, ...],
    correct: Sequence[Sequence[int]],
    clean: int,
    total: int,
) -> Robustness:
    tried = tuple(np.array([float(amount) for amount in amounts]) for amounts in chosen.values())
    return Robustness(name, tuple(chosen), units, tried, tuple(np.array(row) for row in correct), clean, total)


@torch.no_grad()
def _count(model: nn.Module, images: Tensor, label: Tensor, loss: ClassificationLoss) -> int:
    with evaluating(model):
        logits = model(images.to(device_of(model))).logits
        return int(loss.correct(logits, label.to(logits.device)).sum())


class Scaled(nn.Module):
    """A network with the scaling of its loader before it: pixels from 0 to 1 in, a prediction out."""

    def __init__(self, model: nn.Module, scale: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, images: Tensor):
        return self.model(self.scale(images))


def with_scaling(model: nn.Module, loader: Loader) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The network from pixels on, and the images of given examples before they are scaled."""
    if isinstance(loader, Subset):
        scaled, image_of = with_scaling(model, loader.loader)
        return scaled, lambda indices: image_of(loader.select(indices))
    if isinstance(loader, ImageLoader) and (
        loader.transforms.standardize or loader.transforms.mean or loader.transforms.std
    ):
        plain = ImageLoader(loader.dataset, replace(loader.transforms, standardize=False, mean=(), std=()))
        return Scaled(model, loader._scale), lambda indices: plain.batch(indices).inputs[0]
    return model, lambda indices: loader.batch(indices).inputs[0]


@drawing
def draw_robustness(
    networks: Sequence[Robustness | Sequence[Robustness]], title: str = "Accuracy on distorted images"
) -> Figure:
    """One panel for each distortion or attack, one line for each network, with 95 % intervals. A network is a record,
    or the records of its seeds: then the line is their mean, and the interval that of the mean."""
    seeds_of = _seeds_of(networks)
    records = [record for seeds in seeds_of for record in seeds]
    if not records or any(record.kinds != records[0].kinds for record in records):
        raise ValueError("networks are compared by the same distortions; give records that have the same kinds")
    kinds = records[0].kinds
    columns = min(3, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = new_figure(2.9 * columns + 0.4, 2.5 * rows + 1.0 + 0.18 * len(seeds_of), title)
    panels = grid_of_panels(figure, rows, columns, sharey=True).flatten()
    for place, kind in enumerate(kinds):
        panel = panels[place]
        for number, seeds in enumerate(seeds_of):
            color, amounts = COLORS[number % len(COLORS)], seeds[0].amounts[place]
            shares = np.array([record.accuracy(kind) for record in seeds])
            ends = np.array(
                [shares_over_seeds(column.tolist()) for column in shares.T]
                if len(seeds) > 1
                else [interval(int(c), seeds[0].total) for c in seeds[0].correct[place]]
            )
            panel.fill_between(amounts, *(100 * ends.T), color=color, alpha=0.15, linewidth=0)
            panel.plot(
                amounts, 100 * shares.mean(0), color=color, marker=MARKERS[number % len(MARKERS)],
                markersize=4, label=f"{seeds[0].name or 'network'}: {100 * _clean(seeds):.1f} % clean",
            )  # fmt: skip
        panel.set_title(kind.upper() if kind in ATTACKS else kind, color=INK)
        panel.set_xlabel(f"{records[0].units[place]}")
        panel.set_ylim(-3, 103)
        panel.grid(axis="y", color=FAINT, linewidth=0.4)
        if place % columns == 0:
            panel.set_ylabel("accuracy [%]")
    for panel in panels[len(kinds) :]:
        panel.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    legend_below(figure, handles, labels, clean_note(networks))
    return figure


def _seeds_of(networks: Sequence[Robustness | Sequence[Robustness]]) -> list[Sequence[Robustness]]:
    return [(network,) if isinstance(network, Robustness) else network for network in networks]


def _clean(seeds: Sequence[Robustness]) -> float:
    return fmean(record.clean / record.total for record in seeds)


def clean_note(networks: Sequence[Robustness | Sequence[Robustness]]) -> str:
    """Whether the networks are equally good on clean images, without which their curves are hard to compare."""
    seeds_of = _seeds_of(networks)
    clean = [_clean(seeds) for seeds in seeds_of]
    several = f", {len(seeds_of[0])} seeds" if len(seeds_of[0]) > 1 else ""
    note = f"{seeds_of[0][0].total} examples{several}; shaded: 95 % interval"
    if len(seeds_of) == 1:
        return note
    apart = max(clean) - min(clean)
    equal = f"within {100 * EQUAL:.0f} point" if apart < EQUAL else f"{100 * apart:.1f} points apart: compare with care"
    return f"{note}; accuracy on clean images: {equal}"


def novel_viewpoints(dataset: Dataset, axis: str, familiar: Sequence[int | float]) -> tuple[SomeExamples, SomeExamples]:
    """A dataset in two: viewpoints to train on, and all others to test on (Hinton 2018, §5.2: a third of the azimuths,
    or the three lowest elevations). Values are as the metadata counts them.

    Take the first of the training split and the second of the test split, to have new objects as well.
    """
    metadata, _ = metadata_of(dataset)
    if axis not in metadata:
        known = ", ".join(metadata) or "none"
        raise ValueError(f"{dataset.name} says nothing about {axis!r} of its examples; its metadata: {known}")
    inside = np.isin(metadata[axis], np.asarray(familiar))
    if inside.all() or not inside.any():
        there = ", ".join(str(value) for value in np.unique(metadata[axis])[:20])
        raise ValueError(f"{axis} {list(familiar)} leaves one side empty; {dataset.name} has {there}")
    known, new = (torch.from_numpy(np.flatnonzero(side)) for side in (inside, ~inside))
    return (
        SomeExamples(dataset, known, f"{dataset.split}, familiar {axis}"),
        SomeExamples(dataset, new, f"{dataset.split}, novel {axis}"),
    )
