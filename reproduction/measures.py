"""Studies of what networks see and say: tables of the numbers that ``torchcaps.lab.explanation`` measures."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, Literal

import torch

from reproduction.base import CampaignScale
from reproduction.measured import LIMITS, Measured, StudyRun, by_network, count
from torchcaps.data import Dataset
from torchcaps.data import load as load_data
from torchcaps.lab.evaluation import evaluate
from torchcaps.lab.loaders import ImageLoader, Loader, Subset
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.training.examples import Split

SHOWN_EPSILONS = (0.02, 0.1, 0.3)


def robustness(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Accuracy on distorted images."""
    from torchcaps.lab.explanation.distortions import DISTORTIONS
    from torchcaps.lab.explanation.robustness import draw_robustness, measure_robustness

    limit = LIMITS[scale]["distorted"]
    split, images = looked_at([each.run.recipe for each in subjects])
    found = for_every_seed(measure_robustness, subjects, split, limit)
    rows = [
        (
            name,
            [count(one.clean, one.total) for one in seeds],
            *([100 * mean_changed(one, kind, each.rest) for one in seeds] for kind, each in DISTORTIONS.items()),
        )
        for name, seeds in found.items()
    ]
    columns = ("network", "clean", *(f"{kind}, mean %" for kind in DISTORTIONS))
    about = f"Mean over all amounts of each distortion, {images}; the curves are in the figure."
    figure = draw_robustness(list(found.values()), f"Accuracy on distorted images\n{images}")
    numbers = [_curves(one) for seeds in found.values() for one in seeds]
    return Measured(about, columns, rows, {"": figure}, numbers=numbers)


def for_every_seed(
    measure: Callable[..., Any], subjects: Sequence[StudyRun], split: Split, limit: int
) -> dict[str, list[Any]]:
    """The records of each network's seeds."""
    return {
        name: [
            measure(each.opened.model, each.run.loader(split), each.opened.loss, name=name, limit=limit)
            for each in seeds
        ]
        for name, seeds in by_network(subjects).items()
    }


def mean_changed(one: Any, kind: str, rest: float = 0.0) -> float:
    """The share that is right, in the mean over all amounts but the one that changes nothing."""
    return float(one.accuracy(kind)[one.amounts[one.kinds.index(kind)] != rest].mean())


def attacks(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Accuracy under FGSM and PGD that know the network."""
    from torchcaps.lab.explanation.robustness import ATTACKS, EPSILONS, draw_robustness, measure_attacks

    limit = LIMITS[scale]["attacked"]
    split, images = looked_at([each.run.recipe for each in subjects])
    found = for_every_seed(measure_attacks, subjects, split, limit)
    first, second = found  # who is said to be more robust, and against whom
    shown = [(kind, place) for kind in ATTACKS for place in map(EPSILONS.index, SHOWN_EPSILONS)]
    rows = [
        (
            name,
            [count(one.clean, one.total) for one in seeds],
            *([count(one.correct[one.kinds.index(kind)][place], one.total) for one in seeds] for kind, place in shown),
        )
        for name, seeds in found.items()
    ]
    columns = ("network", "clean", *(f"{kind.upper()}, ε = {EPSILONS[place]:g}" for kind, place in shown))
    comparisons = [
        {
            "text": f"capsules are more robust to {kind.upper()} than the CNN, in the mean over all ε above 0",
            "of": "seeds",
            "better": [mean_changed(one, kind) for one in found[first]],
            "worse": [mean_changed(one, kind) for one in found[second]],
            "otherwise": NOT_ROBUST,
        }
        for kind in ATTACKS
    ]
    about = f"No pixel, from 0 to 1, is moved by more than ε; PGD goes in 10 steps; {images}."
    figures = {"": draw_robustness(list(found.values()), f"Accuracy under attack\n{images}")}
    numbers = [_curves(one) for seeds in found.values() for one in seeds]
    return Measured(about, columns, rows, figures, comparisons, numbers)


NOT_ROBUST = (
    "the paper attacks networks that are trained out; these stopped when they were equally good, at three quarters of "
    "the images they know"
)


def looked_at(recipes: Sequence[AnyRecipe]) -> tuple[Split, str]:
    """Which examples networks are compared on, and what to call them: test images, but if all stopped at an accuracy on
    validation images, those."""
    data = recipes[0].data
    if all(recipe.stop_at is not None for recipe in recipes):
        return "val", f"validation images of {data.train}"
    return "test", f"test images of {data.test or data.train}"


def _curves(one: Any) -> dict[str, Any]:
    curves = zip(one.kinds, one.amounts, one.correct, strict=True)
    by_kind = {kind: {"amounts": a.tolist(), "correct": c.tolist()} for kind, a, c in curves}
    return {"network": one.name, "clean": one.clean, "total": one.total, "kinds": by_kind}


def viewpoint(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """How poses of class capsules move with the viewpoint, along every axis that the data have."""
    from torchcaps.lab.explanation.viewpoint import (
        Axis,
        draw_changes_by_view,
        draw_plane,
        find_views,
        measure_trajectories,
        some_planes,
    )

    (subject,) = subjects
    if scale == "smoke":
        return Measured("The data of two steps have no viewpoints.", ("network",), [(subject.name,)])
    dataset, inputs_of = _dataset_of(subject.loader())
    of_what = f"{subject.run.recipe.model_name} on {dataset.name}, {dataset.split}"
    axes: tuple[Axis, ...] = ("azimuth", "elevation")
    rows, figures, numbers = [], {}, {}
    for axis in axes:
        if axis not in dataset.batch(torch.arange(0)).metadata:  # COIL-20 turns objects, and does not tilt them
            continue
        views = find_views(dataset, axis)
        found = measure_trajectories(subject.opened.model, dataset, axis, inputs_of=inputs_of, views=views)
        planes = some_planes(found)
        next_to, apart = distances_of_views(torch.from_numpy(found.pose))
        images = [dataset.batch(torch.from_numpy(indices)).image for indices in views.indices]
        pixels_next_to, pixels_apart = distances_of_views(images)
        rows.append(
            (
                axis,
                len(found.names),
                len(found.degrees),
                fmean(next_to),
                fmean(apart),
                fmean(next_to) / fmean(apart),
                fmean(pixels_next_to) / fmean(pixels_apart),
                fmean(plane.stress for plane in planes),
            )
        )
        numbers[axis] = {"neighbors": next_to, "apart": apart}
        numbers[axis] |= {"pixels of neighbors": pixels_next_to, "pixels apart": pixels_apart}
        figures[f"{axis}-plane"] = draw_plane(planes, f"Pose vectors of the class capsule over {axis}\n{of_what}")
        title = f"Pose vectors of the class capsule over {axis}\n{of_what}"
        figures[f"{axis}-changes"] = draw_changes_by_view(found, title)
    about = (
        "Distances between unit poses of the class capsule: of neighboring views they are small against those of "
        "views that are far apart (half of all views between them) if poses follow the viewpoint. Beside their ratio "
        "is that of the images themselves, as unit vectors of pixels."
    )
    columns = (
        "axis",
        "objects",
        "views",
        "neighboring views",
        "views far apart",
        "ratio",
        "ratio of pixels",
        "stress of the plane",
    )
    return Measured(about, columns, rows, figures, numbers=numbers)


def distances_of_views(objects: Iterable[torch.Tensor]) -> tuple[list[float], list[float]]:
    """For each object, the mean distance of unit vectors: of neighboring views, and of views half of all apart."""
    next_to, apart = [], []
    for views in objects:
        flat = views.flatten(1).double()
        flat = flat / flat.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        half = len(flat) // 2
        next_to.append(float((flat[1:] - flat[:-1]).norm(dim=-1).mean()))
        apart.append(float((flat[half:] - flat[:-half]).norm(dim=-1).mean()))
    return next_to, apart


def _dataset_of(loader: Loader) -> tuple[Dataset, Callable[[torch.Tensor], torch.Tensor]]:
    if isinstance(loader, Subset):
        return _dataset_of(loader.loader)
    if not isinstance(loader, ImageLoader):
        raise ValueError(f"viewpoints are known of datasets of images; got {type(loader).__name__}")
    return loader.dataset, lambda indices: loader.batch(indices).inputs[0]


def separated(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Two overlapping digits, decoded one by one from their capsules."""
    from torchcaps.lab.explanation.overlaps import draw_overlaps, segment, separate

    (subject,) = subjects
    loader = subject.loader()
    batch = loader.batch(torch.arange(min(len(loader), LIMITS[scale]["decoded"])))
    if batch.decode is None or batch.image is None:
        raise ValueError(f"{subject.name}: its test images do not say what they are made of")
    pairs = separate(subject.opened.model, batch.inputs[0], batch.decode, loader.classes, parts=batch.image[:, :, 0])
    segmented = segment(pairs)
    columns = ("network", "images", "pixels given to the right digits, %", "overlap with each digit, %")
    shares = (100 * float(segmented.accuracy.mean()), 100 * float(segmented.overlap.mean()))
    about = "Bright pixels, given to the digits whose drawings are bright there; overlap is intersection over union."
    return Measured(about, columns, [(subject.name, len(batch.label), *shares)], {"": draw_overlaps(pairs)})


def iterations(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Trained networks with other numbers of iterations."""
    from dataclasses import replace

    from torchcaps.lab.explanation.convergence import accuracy_by_iterations, draw_iteration_accuracy

    limit = LIMITS[scale]["counted"]
    found = [
        replace(accuracy_by_iterations(each.opened.model, each.loader(), each.opened.loss, limit=limit), name="")
        for each in subjects
    ]
    rows = [
        (each.name, *(count(c, n) for c, n in zip(one.correct, one.total, strict=True)))
        for each, one in zip(subjects, found, strict=True)
    ]
    columns = ("network", *(f"{number} in testing" for number in found[0].iterations.tolist()))
    figures = {"": draw_iteration_accuracy([replace(one, name="network") for one in found])}
    return Measured("Weights as trained; only the number of iterations changes.", columns, rows, figures)


def familiar(subjects: Sequence[StudyRun], scale: CampaignScale) -> Measured:
    """Accuracy on viewpoints of training and on new ones, instances new in both."""

    def right(subject: StudyRun, split: Literal["familiar", "test"]) -> dict[str, int]:
        recipe = subject.run.recipe
        # The data of two steps have no viewpoints.
        loader = (
            subject.loader()
            if scale == "smoke"
            else ImageLoader(load_data(recipe.data.train, split), recipe.transforms)
        )
        step = max(1, len(loader) // LIMITS[scale]["counted"])
        indices = torch.arange(0, len(loader), step)
        found = evaluate(subject.opened.model, loader, subject.opened.loss, indices=indices)
        return count(found.correct, found.total)

    rows = [
        (name, *([right(each, split) for each in seeds] for split in ("familiar", "test")))
        for name, seeds in by_network(subjects).items()
    ]
    about = "Trained on azimuths from 300° to 40°; all instances of the test are new."
    return Measured(about, ("network", "familiar azimuths", "novel azimuths"), rows)
