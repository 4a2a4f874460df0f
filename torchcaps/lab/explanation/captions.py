"""Sentences that say what a figure shows, made from its numbers; what the numbers do not bear is not said."""

from collections.abc import Callable, Sequence
from math import ceil, floor

import numpy as np

from torchcaps.lab.explanation.convergence import Changes, IterationAccuracy, VoteDistances
from torchcaps.lab.explanation.couplings import Couplings
from torchcaps.lab.explanation.overlaps import Overlaps, Segmentation
from torchcaps.lab.explanation.perturbation import DimensionEffects, Perturbations
from torchcaps.lab.explanation.reconstruction import Reconstructions
from torchcaps.lab.explanation.robustness import ATTACKS, Robustness
from torchcaps.lab.explanation.text import TokenUse
from torchcaps.lab.explanation.viewpoint import Plane, PoseTrajectories
from torchcaps.lab.training.scoring import interval

SAME = 0.05  # a change by less than this part counts as none
SETTLED = 0.1  # routing has converged where the last change is at most this part of the first
WHOLE = 0.95  # a grid that covers so much of each side of the image covers the image
MOST_EVEN, ONE_PARENT = 0.95, 0.3  # entropies from which couplings are nearly even, up to which they have one target
FOLLOWS = 0.3  # correlation from which a measure follows a dimension
GOOD_STRESS, POOR_STRESS = 0.1, 0.2  # Kruskal's words for what multidimensional scaling reaches


def caption_coverage(record: Couplings) -> str:
    """How much of the image the grid of primary capsules lies on."""
    height, width = record.image.shape[1:3]
    left, right, bottom, top = record.extent
    rows, columns = record.presence.shape[1:]
    across, down = (_cover(*ends, size) for ends, size in (((left, right), width), ((top, bottom), height)))
    shares = [(end - start + 1) / size for (start, end), size in ((across, width), (down, height))]
    grid = f"The {rows}×{columns} grid of primary capsules covers the"
    if min(shares) >= WHOLE:
        return f"{grid} whole image."
    return (
        f"{grid} center of the image only (columns {across[0] + 1} to {across[1] + 1} of {width}, rows {down[0] + 1} "
        f"to {down[1] + 1} of {height}): these are the centers of what the capsules see."
    )


def _cover(start: float, end: float, size: int) -> tuple[int, int]:
    """First and last pixel whose center is between two edges."""
    return max(0, ceil(start)), min(size - 1, floor(end))


def caption_overlays(record: Couplings, example: int = 0) -> str:
    """How much goes to the predicted class, at first and at last, and where most."""
    chosen = int(record.probability[example].argmax())
    shares = record.share[example, :, :, :, chosen]
    weight = record.presence[example] / max(float(record.presence[example].sum()), 1e-30)
    mean = (shares * weight).sum((1, 2))
    even = 1.0 / len(record.classes)
    row, column = np.unravel_index(int(shares[-1].argmax()), shares.shape[1:])
    what = "goes to" if record.couples else "agrees on"
    over = _over_iterations(mean, lambda value: f"{100 * value:.1f} %")
    return (
        f"Of what is present, {over} {what} the predicted class “{record.classes[chosen]}”; an even share would be "
        f"{100 * even:.1f} %. The place in row {row + 1}, column {column + 1} of the grid gives it most, "
        f"{100 * shares[-1].max():.1f} %. {caption_coverage(record)}"
    ).strip()


def _over_iterations(values: np.ndarray, words: Callable[[float], str]) -> str:
    if len(values) == 1:
        return words(values[0])
    return f"{words(values[0])} in iteration 1 and {words(values[-1])} in iteration {len(values)}"


def caption_graph(record: Couplings, example: int = 0) -> str:
    """Which whole receives most of the first example's parts."""
    received = record.flow[-1][example].sum(1)  # t k
    most = int(received[-1].argmax())
    over = _over_iterations(received[:, most], lambda value: f"{100 * value:.1f} %")
    chosen = int(record.probability[example].argmax())
    said = f"“{record.classes[most]}” receives most: {over} of all presence."
    if most == chosen:
        return said + " It is the predicted class."
    over = _over_iterations(received[:, chosen], lambda value: f"{100 * value:.1f} %")
    return f"{said} The predicted class “{record.classes[chosen]}” receives {over}."


def caption_entropy(record: Couplings) -> str:
    """How evenly children are shared out at the end, and whether iterations change that."""
    parts = []
    for number, (of_layer, count) in enumerate(zip(record.entropy, record.layer_iterations, strict=True), 1):
        mean = of_layer[:count].mean(1)
        last = float(mean[-1])
        how = "nearly evenly" if last >= MOST_EVEN else "mostly to one parent" if last <= ONE_PARENT else "unevenly"
        over = _over_iterations(mean, lambda value: f"{value:.3f}")
        parts.append(f"Layer {number} shares its children out {how}: entropy {over}.")
    return " ".join(parts)


def caption_token_use(record: TokenUse) -> str:
    """Which token, at which layer, the most probable class uses most."""
    chosen = int(record.probability.argmax())
    used = record.use[..., chosen]
    token, depth = np.unravel_index(int(used.argmax()), used.shape)
    return (
        f"“{record.classes[chosen]}” (probability {100 * record.probability[chosen]:.0f} %) uses most of token "
        f"“{record.tokens[token].strip()}” at layer {depth}: {100 * used.max():.1f} %; "
        f"{100 * used.mean():.1f} % of a token on average."
    )


def caption_reconstructions(record: Reconstructions) -> str:
    """How far reconstructions are from the images, against a black image."""
    error = float(record.error.mean())
    black = float(np.square(record.image).sum((1, 2, 3)).mean())
    part = error / max(black, 1e-12)
    compared = (
        "worse than a black image" if part > 1 else "hardly better than a black image" if part > 0.9 else
        f"{100 * part:.0f} % of a black image's ({black:.1f})"
    )  # fmt: skip
    correct = int((record.label == record.predicted).sum())
    return (
        f"The squared error of a reconstruction from the label's capsule is {error:.1f} on average, {compared}. "
        f"{correct} of {len(record.label)} images are classified correctly."
    )


def caption_overlaps(record: Overlaps) -> str:
    """How many pairs are predicted."""
    both = int((np.sort(record.label, 1) == np.sort(record.predicted, 1)).all(1).sum())
    return f"Both classes are predicted in {both} of {len(record.label)} images."


def caption_segmentation(record: Segmentation) -> str:
    """How many pixels are assigned to the correct object."""
    return (
        f"{100 * float(record.accuracy.mean()):.1f} % of the bright pixels are assigned to the correct object; mean "
        f"intersection over union {float(record.overlap.mean()):.2f}."
    )


def caption_perturbations(record: Perturbations, example: int = 0) -> str:
    """Which dimension changes the decoded image most, and which least."""
    ends = record.decoded[example][:, [int(record.offset.argmin()), int(record.offset.argmax())]]
    change = np.abs(ends[:, 1] - ends[:, 0]).mean((1, 2, 3))
    most, least = int(change.argmax()), int(change.argmin())
    if change[most] == 0 or len(change) == 1:
        return "Moving a dimension does not change the image." if change[most] == 0 else ""
    return (
        f"Dimension {most + 1} changes the image most, by {change[most]:.3f} of full brightness per pixel from the "
        f"lowest offset to the highest; dimension {least + 1} least, by {change[least]:.3f}."
    )


def caption_effects(record: DimensionEffects) -> str:
    """The dimension that a measure follows most closely, and how many no measure follows."""
    strength = np.abs(record.correlation)
    silent = int((strength.max(1) < FOLLOWS).sum())
    count = len(strength)
    if silent == count:
        return f"None of the {count} dimensions moves a measure (no correlation reaches {FOLLOWS})."
    dimension, measure = np.unravel_index(int(strength.argmax()), strength.shape)
    change, correlation = record.change[dimension, measure], record.correlation[dimension, measure]
    said = (
        f"The {record.measures[measure]} follows dimension {dimension + 1} most closely: {change:+.2f} "
        f"{record.units[measure]} from the lowest offset to the highest (r = {correlation:+.2f})."
    ).replace("-", "−")
    rest = f" {silent} of {count} dimensions move none of the measures." if silent else ""
    return said + rest


def caption_changes(record: Changes) -> str:
    """Whether what iterations change gets smaller or larger, layer by layer."""
    parts = []
    for number, of_layer in enumerate(record.coupling, 1):
        first, last = float(of_layer[0]), float(of_layer[-1])
        figures = f"from {first:.2g} at iteration 2 to {last:.2g} at iteration {len(of_layer) + 1}"
        name = f"Layer {number} ({record.routings[number - 1]})"
        if max(first, last) == 0:
            parts.append(f"{name}: no iteration changes the couplings.")
        elif len(of_layer) == 1:
            parts.append(f"{name}: the second iteration changes a coupling by {first:.2g} on average.")
        elif last <= SETTLED * first:
            parts.append(f"{name}: changes of the couplings shrink {figures}; the routing converges.")
        elif last < (1 - SAME) * first:
            parts.append(f"{name}: changes of the couplings shrink {figures}; the routing has not converged by then.")
        elif last > (1 + SAME) * first:
            parts.append(f"{name}: changes of the couplings grow {figures}; the routing does not converge.")
        else:
            parts.append(f"{name}: changes of the couplings stay as large as they were, {figures}.")
    return " ".join(parts)


def caption_iterations(record: IterationAccuracy) -> str:
    """Which number of iterations is best, and whether it matters on so many examples."""
    accuracy, total = record.accuracy, int(record.total[0])
    best, worst = int(accuracy.argmax()), int(accuracy.argmin())
    if accuracy[best] == accuracy[worst]:
        return f"Accuracy is {100 * accuracy[best]:.1f} % with every number of iterations."
    low, _ = interval(int(record.correct[best]), int(record.total[best]))
    said = (
        f"Accuracy goes from {100 * accuracy[worst]:.1f} % ({_iterations(int(record.iterations[worst]))}) to "
        f"{100 * accuracy[best]:.1f} % ({_iterations(int(record.iterations[best]))}) on {total} examples"
    )
    within = accuracy[worst] >= low
    said += "; the difference is within the 95 % interval." if within else "."
    if record.trained_with is not None and record.trained_with in record.iterations.tolist():
        here = accuracy[record.iterations.tolist().index(record.trained_with)]
        said += f" With the {_iterations(record.trained_with)} of training it is {100 * here:.1f} %."
    return said


def _iterations(number: int) -> str:
    return f"{number} iteration" + ("" if number == 1 else "s")


def caption_vote_distances(record: VoteDistances, example: int = 0) -> str:
    """Whether the votes for the label's capsule draw together or apart, of the example shown and of all."""
    means = record.mean[np.arange(len(record.label)), :, record.label]  # n t
    name = record.classes[record.label[example]]
    if means.shape[1] == 1:
        return f"Votes for “{name}” lie {means[example, 0]:.3g} from their mean (squared); there is one pass only."
    first, last = float(means[example, 0]), float(means[example, -1])
    figures = f"{first:.3g} in iteration 1 and {last:.3g} in iteration {means.shape[1]}"
    does = {-1: "draw together", 0: "stay as far apart as they were", 1: "draw apart"}
    trends = [_trend(row[0], row[-1]) for row in means.tolist()]
    said = f"The votes for “{name}”, the label, {does[trends[example]]}: mean squared distance {figures}."
    if len(trends) > 1:
        counts = [f"{does[trend]} in {trends.count(trend)}" for trend in (-1, 0, 1) if trend in trends]
        said += f" In all {len(trends)} examples that were measured: they {', '.join(counts)}."
    return said


def _trend(first: float, last: float) -> int:
    """Whether a number fell (−1), rose (1) or stayed."""
    if abs(last - first) <= SAME * max(abs(first), 1e-30):
        return 0
    return 1 if last > first else -1


def caption_planes(planes: Sequence[Plane]) -> str:
    """How far the distances in the plane can be trusted."""
    worst = max(plane.stress for plane in planes)
    how = "faithful" if worst <= GOOD_STRESS else "fair" if worst <= POOR_STRESS else "poor: read them with care"
    return f"The stress is at most {worst:.3f}; distances in the plane are {how}."


def caption_views(record: PoseTrajectories) -> str:
    """How far poses go from the first view, and where."""
    changes = record.changes()
    distance, cosine = changes["distance"].mean((0, 2)), changes["cosine"].mean((0, 2))
    far = int(distance.argmax())
    return (
        f"On average over {len(record.names)} objects, pose vectors are farthest from the first view at "
        f"{record.degrees[far]:g}°: by {distance[far]:.2f} of its norm, with a cosine of {cosine[far]:.2f}. At the "
        f"last view, {record.degrees[-1]:g}°, it is {distance[-1]:.2f}."
    )


def caption_robustness(record: Robustness) -> str:
    """Which distortion costs most, and which least."""
    clean = record.clean / record.total
    lowest = {kind: int(record.accuracy(kind).argmin()) for kind in record.kinds}
    lost = {kind: clean - float(record.accuracy(kind)[place]) for kind, place in lowest.items()}
    said = f"{100 * clean:.1f} % of {record.total} clean images are correct."
    if max(lost.values()) <= 0:
        return f"{said} Nothing that was tried lowers that."

    def point(kind: str) -> str:
        place = record.kinds.index(kind)
        amount = record.amounts[place][lowest[kind]]
        name = kind.upper() if kind in ATTACKS else kind
        reached = f"{100 * float(record.accuracy(kind)[lowest[kind]]):.1f} %"
        return f"{name} (to {reached} at {amount:g} [{record.units[place]}])".replace("-", "−")

    hardest, mildest = (order(lost, key=lambda kind: lost[kind]) for order in (max, min))
    said += f" The largest loss is under {point(hardest)}"
    return f"{said}, the smallest under {point(mildest)}." if mildest != hardest else f"{said}."
