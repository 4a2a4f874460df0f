"""All figures that apply to a network and its data, by topic; what does not apply says why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.data import Dataset
from torchcaps.data.base import choose_evenly
from torchcaps.lab.explanation import (
    captions,
    convergence,
    couplings,
    overlaps,
    perturbation,
    reconstruction,
    robustness,
    viewpoint,
)
from torchcaps.lab.explanation.convergence import draw_changes, draw_iteration_accuracy, draw_vote_distances
from torchcaps.lab.explanation.couplings import draw_entropy, draw_graph, draw_overlays
from torchcaps.lab.explanation.records import FigureRecord
from torchcaps.lab.explanation.text import draw_token_use, measure_token_use
from torchcaps.lab.loaders import ImageLoader, Loader, ModelBatch, Subset
from torchcaps.lab.tracing.networks import require_capsules, require_decoder, takes_images
from torchcaps.losses import ClassificationLoss
from torchcaps.models import Model

FEW, SOME = 4, 16  # images of a figure, and of a mean


@dataclass(frozen=True)
class ExplainedModel:
    """What is explained: a network and its examples. ``run`` and ``data`` are their names in titles; ``limit`` is how
    many examples accuracies are counted on."""

    model: Model
    loader: Loader
    loss: ClassificationLoss
    run: str
    data: str
    limit: int = 300

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loader.classes

    def title(self, text: str) -> str:
        return f"{text}\n{self.run}, examples of {self.data}"

    def some(self, count: int) -> ModelBatch:
        """Examples of as many classes as possible, evenly over the loader."""
        indices = choose_evenly(20 * count, len(self.loader))
        labels = self.loader.batch(indices).label
        first = labels if labels.ndim == 1 else labels.argmax(-1)
        seen: dict[int, list[int]] = {}
        for place, label in enumerate(first.tolist()):
            seen.setdefault(label, []).append(place)
        turns = [places[turn] for turn in range(count) for _, places in sorted(seen.items()) if turn < len(places)]
        return self.loader.batch(indices[sorted(turns[:count])])

    def require_images(self) -> None:
        inputs = self.loader.batch(torch.zeros(1, dtype=torch.long)).inputs[0]
        if not takes_images(self.model, inputs):
            raise ValueError(f"inputs of shape {tuple(inputs.shape[1:])} are no images")


@dataclass(frozen=True)
class TopicFigure:
    """A figure, what it is called as a file, what it draws, what its numbers say, and the numbers."""

    name: str
    caption: str
    finding: str
    figure: Figure
    record: FigureRecord


def draw_couplings(subject: ExplainedModel) -> Iterator[TopicFigure]:
    require_capsules(subject.model)
    batch = subject.some(SOME)
    if not takes_images(subject.model, batch.inputs[0]):
        states, *masks = batch.inputs
        if states.ndim != 4:
            raise ValueError(f"inputs of shape {tuple(states.shape[1:])} are neither images nor hidden states of texts")
        mask = masks[0][0] > 0 if masks else None
        used = measure_token_use(subject.model, states[0], None, subject.classes, mask)
        figure = draw_token_use(used, subject.title("What is used of each token and layer"))
        caption = "How much of each token, at each layer of the language model, each class uses."
        yield TopicFigure("token-use", caption, captions.caption_token_use(used), figure, used)
        return
    record = couplings.measure_couplings(subject.model, batch.inputs[0], batch.label, subject.classes)
    for example in range(min(2, len(batch.label))):
        figure = draw_overlays(record, subject.title("Where the parts went"), example=example)
        caption = "What part of each place goes to a class, iteration by iteration."
        finding = captions.caption_overlays(record, example)
        yield TopicFigure(f"couplings-{example + 1}", caption, finding, figure, record)
    figure = draw_graph(record, subject.title("From parts to wholes"))
    caption = "Parts, by type, and the wholes that they go to."
    yield TopicFigure("coupling-graph", caption, captions.caption_graph(record), figure, record)
    figure = draw_entropy(record, subject.title("How evenly children are shared out"))
    caption = "Entropy of the couplings of each layer and iteration."
    yield TopicFigure("coupling-entropy", caption, captions.caption_entropy(record), figure, record)


def draw_reconstruction(subject: ExplainedModel) -> Iterator[TopicFigure]:
    subject.require_images()
    require_decoder(subject.model)
    batch = subject.some(6 * SOME)
    if batch.label.ndim == 1:
        target = batch.image if batch.image is not None and batch.image.shape == batch.inputs[0].shape else None
        record = reconstruction.reconstruct(subject.model, batch.inputs[0], batch.label, subject.classes, target=target)
        figure = reconstruction.draw_reconstructions(record, subject.title("Reconstructions"))
        caption = "What the decoder makes of the class capsule alone."
        yield TopicFigure("reconstructions", caption, captions.caption_reconstructions(record), figure, record)
        return
    if batch.decode is None or batch.decode.ndim != 2 or batch.decode.shape[1] != 2 or bool((batch.decode < 0).any()):
        raise ValueError("only pairs of overlapping objects are separated; these images have other numbers of them")
    parts = None if batch.image is None else batch.image[:, :, 0]
    pairs = overlaps.separate(subject.model, batch.inputs[0], batch.decode, subject.classes, parts=parts)
    figure = overlaps.draw_overlaps(pairs, subject.title("Overlapping objects told apart"))
    caption = "The two objects of each image, decoded one by one."
    yield TopicFigure("overlaps", caption, captions.caption_overlaps(pairs), figure, pairs)
    if parts is not None:
        segmented = overlaps.segment(pairs)
        figure = overlaps.draw_segmentation(pairs, segmented, subject.title("Whose each pixel is"))
        caption = "Pixels assigned to objects."
        yield TopicFigure("segmentation", caption, captions.caption_segmentation(segmented), figure, segmented)


def draw_perturbation(subject: ExplainedModel) -> Iterator[TopicFigure]:
    subject.require_images()
    batch = subject.some(SOME)
    labels = batch.label if batch.label.ndim == 1 else batch.label.argmax(-1)
    record = perturbation.perturb(subject.model, batch.inputs[0], labels, subject.classes)
    effects = perturbation.dimension_effects(record)
    name = subject.classes[int(labels[0])]
    title = subject.title(f"Each dimension of the capsule of “{name}” moved")
    figure = perturbation.draw_perturbations(record, title, effects=effects)
    caption = "One dimension of the pose after the other moved, and decoded."
    yield TopicFigure("perturbation", caption, captions.caption_perturbations(record), figure, record)
    figure = perturbation.draw_effects(effects, subject.title("What each dimension of the pose does"))
    caption = "Correlation of each dimension with measures of the decoded shape."
    yield TopicFigure("dimension-effects", caption, captions.caption_effects(effects), figure, effects)


def draw_iterations(subject: ExplainedModel) -> Iterator[TopicFigure]:
    require_capsules(subject.model)
    batch = subject.some(SOME)
    inputs, *masks = batch.inputs
    if masks:
        raise ValueError("inputs with a mask are not traced over iterations")
    changes = convergence.measure_changes(subject.model, inputs)
    figure = draw_changes(changes, subject.title("What each iteration changes"))
    caption = "Mean change of routing logits and couplings from one iteration to the next."
    yield TopicFigure("routing-changes", caption, captions.caption_changes(changes), figure, changes)
    counted = convergence.accuracy_by_iterations(subject.model, subject.loader, subject.loss, limit=subject.limit)
    figure = draw_iteration_accuracy([counted], subject.title("Accuracy by number of routing iterations"))
    caption = "Accuracy with other numbers of iterations than in training, without training again."
    yield TopicFigure("iteration-accuracy", caption, captions.caption_iterations(counted), figure, counted)
    labels = batch.label if batch.label.ndim == 1 else batch.label.argmax(-1)
    votes = convergence.measure_vote_distances(subject.model, inputs[:FEW], labels[:FEW], subject.classes)
    figure = draw_vote_distances(votes, subject.title("Distances of votes to the mean of their class capsule"))
    caption = "Squared distances of the votes to the mean of their class capsule, after each iteration."
    yield TopicFigure("vote-distances", caption, captions.caption_vote_distances(votes), figure, votes)


def draw_viewpoint(subject: ExplainedModel) -> Iterator[TopicFigure]:
    require_capsules(subject.model)
    dataset, inputs_of = _dataset_of(subject.loader)
    reasons, any_drawn = [], False
    for axis in ("azimuth", "elevation"):
        try:
            record = viewpoint.measure_trajectories(subject.model, dataset, axis, inputs_of=inputs_of)
        except ValueError as error:
            reasons.append(str(error))
            continue
        any_drawn = True
        planes = viewpoint.some_planes(record)
        figure = viewpoint.draw_plane(planes, subject.title(f"Pose vectors of class capsules over {axis}"))
        caption = f"Pose vectors in the plane, over {axis}."
        yield TopicFigure(f"trajectories-{axis}", caption, captions.caption_planes(planes), figure, planes[0])
        figure = viewpoint.draw_changes_by_view(record, subject.title(f"Pose vectors over {axis}"))
        caption = f"Distance, norm and cosine of pose vectors over {axis}, against the first view."
        yield TopicFigure(f"poses-{axis}", caption, captions.caption_views(record), figure, record)
    if not any_drawn:
        raise ValueError("; ".join(reasons))


def draw_robustness(subject: ExplainedModel) -> Iterator[TopicFigure]:
    subject.require_images()
    measured = robustness.measure_robustness(
        subject.model, subject.loader, subject.loss, name=subject.run, limit=subject.limit
    )
    figure = robustness.draw_robustness([measured], subject.title("Accuracy on distorted images"))
    caption = "Accuracy under rotation, shear, scale, translation, noise and occlusion."
    yield TopicFigure("robustness", caption, captions.caption_robustness(measured), figure, measured)
    attacked = robustness.measure_attacks(
        subject.model, subject.loader, subject.loss, name=subject.run, limit=min(100, subject.limit)
    )
    figure = robustness.draw_robustness([attacked], subject.title("Accuracy under attack"))
    caption = "FGSM and PGD: pixels moved a little, to mislead."
    yield TopicFigure("attacks", caption, captions.caption_robustness(attacked), figure, attacked)


TOPICS: dict[str, Callable[[ExplainedModel], Iterator[TopicFigure]]] = {
    "couplings": draw_couplings,
    "reconstruction": draw_reconstruction,
    "perturbation": draw_perturbation,
    "iterations": draw_iterations,
    "viewpoint": draw_viewpoint,
    "robustness": draw_robustness,
}


def _dataset_of(loader: Loader) -> tuple[Dataset, Callable[[Tensor], Tensor]]:
    """The images under a loader, all of them, and their way to inputs."""
    if isinstance(loader, Subset):
        return _dataset_of(loader.loader)
    if not isinstance(loader, ImageLoader):
        raise ValueError("viewpoints are known of datasets of images only")
    return loader.dataset, lambda indices: loader.batch(indices).inputs[0]
