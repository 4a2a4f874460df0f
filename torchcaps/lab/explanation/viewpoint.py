"""How the pose of a class capsule moves when the viewpoint does (Heinsen 2019, Figs. 4, 6 and 7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from torchcaps.capsules import pose_shape
from torchcaps.data import Dataset
from torchcaps.lab.explanation.figures import (
    COLORS,
    FAINT,
    INK,
    SMALL,
    TINY,
    drawing,
    grid_of_panels,
    legend_below,
    new_figure,
)
from torchcaps.lab.explanation.records import FigureRecord, as_array
from torchcaps.lab.tracing.networks import evaluating, require_capsules
from torchcaps.layers import CapsuleLayer
from torchcaps.models import CapsuleNet
from torchcaps.models.base import device_of


class Embedding(NamedTuple):
    """Points, and Kruskal's stress: the root of the squared errors of the distances by the squared distances; 0 where
    the distances are met exactly."""

    points: Float[np.ndarray, "n dimension"]
    stress: float


def pairwise_distances(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """Euclidean distances between all rows."""
    squares = (points**2).sum(1)
    product = points @ points.T
    found = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * product, 0.0))
    np.fill_diagonal(found, 0.0)
    return found


def stress(points: Float[np.ndarray, "n d"], distances: Float[np.ndarray, "n n"]) -> float:
    """Kruskal's stress of points for given distances."""
    total = float((distances**2).sum())
    error = float(((pairwise_distances(points) - distances) ** 2).sum())
    return float(np.sqrt(error / total)) if total > 0 else 0.0


def classical_scaling(distances: Float[np.ndarray, "n n"], dimensions: int = 2) -> Float[np.ndarray, "n dimension"]:
    """Torgerson's scaling: the leading eigenvectors of the doubly centered squared distances."""
    count = len(distances)
    centering = np.eye(count) - 1.0 / count
    values, vectors = np.linalg.eigh(-0.5 * centering @ distances**2 @ centering)
    leading = np.argsort(values)[::-1][:dimensions]
    points = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    missing = dimensions - points.shape[1]
    return np.pad(points, ((0, 0), (0, missing))) if missing > 0 else points


def scale_to_plane(
    distances: Float[np.ndarray, "n n"], dimensions: int = 2, steps: int = 300, tolerance: float = 1e-9
) -> Embedding:
    """Classical scaling, improved by SMACOF (Guttman's transform) until the stress no longer falls."""
    distances = np.asarray(distances, dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1] or not np.allclose(distances, distances.T):
        raise ValueError(f"distances are a symmetric square; got an array of shape {distances.shape}")
    if len(distances) < 2:
        raise ValueError("scaling needs two points at least")
    points = classical_scaling(distances, dimensions)
    now = stress(points, distances)
    for _ in range(steps):
        found = pairwise_distances(points)
        ratio = np.divide(distances, found, out=np.zeros_like(distances), where=found > 1e-12)
        transform = -ratio
        np.fill_diagonal(transform, ratio.sum(1))
        moved = transform @ points / len(points)
        then = stress(moved, distances)
        if now - then < tolerance:
            break
        points, now = moved, then
    return Embedding(points, now)


Axis = Literal["azimuth", "elevation"]
MOST_SHOWN = 0.99  # share of all values that a panel of changes has room for
MOST_LINES = 12  # views that are drawn in a plane: of more, every second or third
STEPS: dict[str, tuple[float, float]] = {"azimuth": (10.0, 0.0), "elevation": (5.0, 30.0)}
"""smallNORB's counting, which the toys share, in degrees: times the first, plus the second."""


@dataclass(frozen=True)
class ViewedPoses:
    """Examples that differ in the viewpoint alone: a row for each object, a column for each viewpoint."""

    axis: Axis
    indices: Int[np.ndarray, "instance view"]
    degrees: Float[np.ndarray, "view"]
    names: tuple[str, ...]  # of the instances


def find_views(dataset: Dataset, axis: Axis) -> ViewedPoses:
    """The sequences of a dataset in which only the azimuth, or only the elevation, changes; one for each object, at
    the first of all other conditions. Works by the metadata: smallNORB, toys and COIL-20 have it."""
    everything = dataset.batch(torch.arange(0)).metadata
    if axis not in everything:
        known = ", ".join(everything) or "none"
        raise ValueError(f"{dataset.name} says nothing about the {axis} of its examples; its metadata: {known}")
    metadata, labels = metadata_of(dataset)
    angle = metadata[axis]
    others = [metadata[name] for name in ("azimuth", "elevation", "lighting") if name in metadata and name != axis]
    first = np.ones(len(labels), bool)
    for values in others:
        first &= values == values[first].min()
    instance = metadata.get("instance", np.zeros_like(labels))
    groups = sorted({(int(k), int(i)) for k, i in zip(labels[first], instance[first], strict=True)})
    angles = np.unique(angle[first])
    rows, names = [], []
    for label, number in groups:
        here = np.flatnonzero(first & (labels == label) & (instance == number))
        here = here[np.argsort(angle[here], kind="stable")]
        if len(here) == len(angles) and (angle[here] == angles).all():
            rows.append(here)
            names.append(f"{dataset.classes[label]} {number}" if "instance" in metadata else dataset.classes[label])
    if not rows or len(angles) < 2:
        raise ValueError(f"{dataset.name}/{dataset.split} has no object seen from every {axis}")
    times, plus = STEPS[axis] if "instance" in metadata else (1.0, 0.0)  # COIL-20 counts in degrees already
    return ViewedPoses(axis, np.stack(rows), angles * times + plus, tuple(names))


def metadata_of(dataset: Dataset, piece: int = 2048) -> tuple[dict[str, np.ndarray], np.ndarray]:
    stored = getattr(dataset, "metadata", None)
    labels = getattr(dataset, "labels", None)
    if isinstance(stored, dict) and isinstance(labels, Tensor):
        return {name: as_array(values) for name, values in stored.items()}, as_array(labels)
    batches = [dataset.batch(part) for part in torch.arange(len(dataset)).split(piece)]
    names = batches[0].metadata
    joined = {name: as_array(torch.cat([batch.metadata[name] for batch in batches])) for name in names}
    return joined, as_array(torch.cat([batch.label for batch in batches]))


@dataclass(frozen=True)
class PoseTrajectories(FigureRecord):
    """The pose vectors of each object's class capsule, from every viewpoint: ``c`` vectors (rows of the pose) of
    ``h`` numbers. ``chosen`` is the class whose capsule it is: the one most active over all views of the object."""

    pose: Float[np.ndarray, "instance view c h"]
    degrees: Float[np.ndarray, "view"]
    chosen: Int[np.ndarray, "instance"]
    axis: str
    names: tuple[str, ...]
    classes: tuple[str, ...]

    def changes(self) -> dict[str, Float[np.ndarray, "instance view c"]]:
        """Against the first view: distance by the first norm, ratio of the norms, and cosine."""
        first = self.pose[:, :1]
        norm = np.linalg.norm(self.pose, axis=-1)
        base = np.maximum(np.linalg.norm(first, axis=-1), 1e-12)
        cosine = (self.pose * first).sum(-1) / np.maximum(norm * base, 1e-12)
        return {
            "distance": np.linalg.norm(self.pose - first, axis=-1) / base,
            "norm ratio": norm / base,
            "cosine": cosine,
        }


@torch.no_grad()
def measure_trajectories(
    model: nn.Module,
    dataset: Dataset,
    axis: Axis,
    *,
    inputs_of: Callable[[Int[Tensor, "n"]], Tensor] | None = None,
    views: ViewedPoses | None = None,
) -> PoseTrajectories:
    """Show a network every object from all viewpoints of one axis and keep its class capsule's pose. ``inputs_of``
    gives the inputs of the dataset's examples, where they are not the images themselves."""
    net = require_capsules(model)
    views = find_views(dataset, axis) if views is None else views
    layer = net.layers[-1]
    if isinstance(layer, CapsuleLayer):
        rows, columns = layer.rows, layer.out_columns
    else:
        assert isinstance(net, CapsuleNet)
        rows, columns = pose_shape(net.class_pose)
    poses, chosen = [], []
    with evaluating(net):
        for indices in views.indices:
            numbers = torch.from_numpy(indices)
            inputs = dataset.batch(numbers).image if inputs_of is None else inputs_of(numbers)
            prediction = net(inputs.to(device_of(model)))
            best = int(prediction.logits.softmax(-1).mean(0).argmax())
            assert prediction.capsules is not None
            poses.append(as_array(prediction.capsules.pose[:, best].unflatten(-1, (rows, columns))))
            chosen.append(best)
    return PoseTrajectories(
        np.stack(poses), views.degrees.astype(np.float32), np.array(chosen), axis, views.names, dataset.classes
    )


@dataclass(frozen=True)
class Plane(FigureRecord):
    """Pose vectors of one object in the plane, and the stress of bringing them there."""

    points: Float[np.ndarray, "view c 2"]
    degrees: Float[np.ndarray, "view"]
    stress: float
    axis: str
    name: str


def in_plane(record: PoseTrajectories, instance: int = 0) -> Plane:
    """Multidimensional scaling of all pose vectors of one object together."""
    pose = record.pose[instance].astype(np.float64)
    views, vectors, _ = pose.shape
    embedded = scale_to_plane(pairwise_distances(pose.reshape(views * vectors, -1)))
    points = embedded.points.reshape(views, vectors, 2)
    return Plane(points, record.degrees, embedded.stress, record.axis, record.names[instance])


def some_planes(record: PoseTrajectories, most: int = 3) -> list[Plane]:
    """Objects evenly among all, so that they are of different classes."""
    count = len(record.names)
    return [in_plane(record, count * place // min(most, count)) for place in range(min(most, count))]


@drawing
def draw_plane(planes: Sequence[Plane], title: str = "") -> Figure:
    """Trajectories: each view's pose vectors as connected corners, colored by the angle; circles mark the first pose
    vector of the first and the last view."""
    figure = new_figure(3.3 * len(planes) + 1.0, 3.9, title or f"Pose vectors over {planes[0].axis}")
    panels = grid_of_panels(figure, 1, len(planes))[0]
    degrees = planes[0].degrees
    scale = Normalize(float(degrees.min()), float(degrees.max()))
    colors = mpl.colormaps["viridis"]
    for panel, plane in zip(panels, planes, strict=True):
        shown = slice(None, None, -(-len(plane.degrees) // MOST_LINES))
        for corners, angle in zip(plane.points[shown], plane.degrees[shown], strict=True):
            color = colors(scale(float(angle)))
            panel.plot(corners[:, 0], corners[:, 1], "-", color=color, linewidth=1.0, alpha=0.8)
            panel.plot(corners[:, 0], corners[:, 1], ".", color=color, markersize=4)
        for place, name in ((0, "first"), (-1, "last")):
            x, y = plane.points[shown][place, 0]
            panel.plot(x, y, "o", color="#D55E00", fillstyle="none", markersize=9, markeredgewidth=1.5)
            panel.annotate(name, (x, y), xytext=(6, 6), textcoords="offset points", fontsize=TINY, color=INK)
        panel.set_title(f"{plane.name}: stress {plane.stress:.3f}", color=INK)
        panel.set_aspect("equal", adjustable="datalim")
        panel.set_xticks([])
        panel.set_yticks([])
    picture = ScalarMappable(scale, colors)
    figure.colorbar(picture, ax=list(panels), label=f"{planes[0].axis} [°]", shrink=0.8)
    figure.supxlabel(
        "each line joins the pose vectors of one view; distances in the plane are theirs, as far as the stress allows",
        fontsize=SMALL,
    )
    return figure


@drawing
def draw_changes_by_view(record: PoseTrajectories, title: str = "", most_vectors: int = 4) -> Figure:
    """Distance, norm ratio and cosine of each pose vector against the angle: all objects thin, their mean thick."""
    changes = record.changes()
    vectors = min(most_vectors, record.pose.shape[2])
    shown_title = title or f"Pose vectors of the class capsule over {record.axis}"
    figure = new_figure(2.0 * vectors + 1.2, 6.0, shown_title)
    panels = grid_of_panels(figure, 3, vectors, sharex=True, sharey="row")
    cut = False
    for row, (name, values) in enumerate(changes.items()):
        for vector in range(vectors):
            _draw_lines(panels[row, vector], record.degrees, values[:, :, vector])
        shown = values[:, :, :vectors]
        highest = 1.2 * float(np.quantile(shown, MOST_SHOWN))
        if name != "cosine" and shown.max() > 1.5 * highest:  # one object would press all others flat
            panels[row, 0].set_ylim(top=highest)
            cut = True
        label = {"distance": "distance to the first\n(by its norm)", "norm ratio": "norm by the\nfirst norm"}
        panels[row, 0].set_ylabel(label.get(name, "cosine with\nthe first"))
    for vector in range(vectors):
        panels[0, vector].set_title(f"pose vector {vector + 1}" if record.pose.shape[2] > 1 else "pose vector")
        panels[-1, vector].set_xlabel(f"{record.axis} [°]")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend_below(figure, handles, labels, note="lines that leave their panel go on above it" if cut else "")
    return figure


def _draw_lines(panel: Axes, degrees: np.ndarray, values: np.ndarray) -> None:
    for number, line in enumerate(values):
        label = f"each of {len(values)} objects" if number == 0 else None
        panel.plot(degrees, line, color=FAINT, linewidth=0.6, label=label)
    panel.plot(degrees, values.mean(0), color=COLORS[0], linewidth=2.0, label="mean")
