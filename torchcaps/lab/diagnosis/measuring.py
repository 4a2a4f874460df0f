"""What is measured of a network on one batch: inputs, labels, capsules, couplings, gradients. Plain numbers."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.decoders import Decoder
from torchcaps.lab.diagnosis.subject import Subject
from torchcaps.lab.tracing.networks import require_capsules
from torchcaps.lab.tracing.traces import LayerTrace, iterating, trace_with_logits
from torchcaps.layers import CapsuleLayer

LONG = 0.99  # length of a squashed pose, or presence, from which it is saturated
SHORT = 0.01  # presence below which a capsule is absent
FEWEST_NEIGHBORS = 100  # examples from which the labels of nearest neighbors say something
MOST_CHANNELS_LAST = 4
EVEN = (-4.0, -2.0, -1.5, -1.0, -0.5, 0.0, 2.0)  # logits of a network that cannot tell classes apart
FLOOR = 1.01  # a variance below so many times its floor is at it


@dataclass(frozen=True)
class InputStatistics:
    """The inputs of a batch. ``size`` is the root of the mean square; ``varied`` the difference between examples as a
    part of it; ``scrambled`` how much smoother the images are if their numbers are read channel by channel last."""

    shape: tuple[int, ...]
    is_image: bool
    not_finite: float
    size: float
    varied: float
    constant_channels: tuple[int, ...]
    channels_last: bool
    scrambled: float | None


@dataclass(frozen=True)
class LabelStatistics:
    """The labels of a batch. ``neighbors`` is by how many standard deviations an input and its nearest neighbor have
    the same label more often than strangers; ``None`` where there are too few examples to say."""

    count: int
    classes: int
    outside: float
    neighbors: float | None


@dataclass(frozen=True)
class Stage:
    """The capsules between two layers, type by type. Empty tuples where capsules have no scores."""

    name: str
    mean_presence: tuple[float, ...]
    highest_presence: tuple[float, ...]
    lowest_presence: tuple[float, ...]
    length: float  # root mean square of poses' lengths
    squashed: bool  # whether the length of a pose is its presence
    long: float  # share of poses that are longer than LONG
    at_floor: float | None  # share of variances that are hardly above their floor


@dataclass(frozen=True)
class Layer:
    """One layer's routing. ``couplings`` is false where the routing has none: what follows is then empty."""

    name: str
    routing: str
    couplings: bool
    entropy: tuple[float, ...]  # of each iteration: 1 for even couplings, 0 where each child has one parent
    mass: tuple[float, ...]  # each parent's part of all couplings of the last iteration, over all examples
    change: tuple[float, ...]  # how far couplings move from one iteration to the next, 0 to 1
    swing: float | None  # how much of the last change takes back the one before it
    moved: float = 0.0  # what all iterations together move
    gradients: tuple[float, ...] = ()  # norm of the vote weights' gradient, with 1, 2, … iterations


@dataclass(frozen=True)
class PartGradient:
    """The gradient in the parameters of one part of the network."""

    name: str
    size: float  # root mean square
    size_as_given: float  # the same before a copy has learned a few examples by heart


@dataclass(frozen=True)
class LossStatistics:
    """The losses on the batch; ``chance`` is the lowest of equal logits."""

    classes: float
    chance: float
    accuracy: float
    reconstruction: float


def measure_inputs(inputs: Tensor, is_image: bool) -> InputStatistics:
    """Size, spread and layout of a batch of inputs."""
    numbers = inputs.detach().float()
    finite = numbers.isfinite()
    numbers = torch.where(finite, numbers, 0.0)
    size = float(numbers.square().mean().sqrt())
    varied = float((numbers - numbers.mean(0)).square().mean().sqrt()) / max(size, 1e-30) if len(numbers) > 1 else 1.0
    constant: tuple[int, ...] = ()
    last = scrambled = None
    if is_image:
        by_channel = numbers.transpose(0, 1).flatten(1)
        spread = by_channel.amax(1) - by_channel.amin(1)
        constant = tuple((spread <= 1e-6 * max(size, 1e-30)).nonzero()[:, 0].tolist())
        _, channels, rows, columns = numbers.shape
        last = columns in (1, 3, 4) and min(channels, rows) > MOST_CHANNELS_LAST
        if 1 < channels <= MOST_CHANNELS_LAST and min(rows, columns) > 2 and size > 0:
            other = numbers.reshape(-1, rows, columns, channels).permute(0, 3, 1, 2)
            scrambled = _roughness(numbers) / max(_roughness(other), 1e-30)
    return InputStatistics(
        tuple(inputs.shape),
        is_image,
        1.0 - float(finite.float().mean()),
        size,
        varied,
        constant,
        bool(last),
        scrambled,
    )


def _roughness(images: Float[Tensor, "b channel row column"]) -> float:
    """How much neighboring pixels differ."""
    return float(images.diff(dim=2).square().mean() + images.diff(dim=3).square().mean())


def measure_labels(inputs: Tensor, label: Tensor, classes: int, is_image: bool) -> LabelStatistics:
    """Whether labels are in range, and for images whether they have to do with them."""
    if label.ndim == 2:
        wrong = ((label < 0) | (label > 1)).any(-1) if label.shape[1] == classes else torch.ones(len(label))
        return LabelStatistics(len(label), classes, float(wrong.float().mean()), None)
    outside = float(((label < 0) | (label >= classes)).float().mean())
    compared = None if outside or not is_image else compare_neighbors(inputs, label)
    return LabelStatistics(len(label), classes, outside, compared)


def compare_neighbors(inputs: Tensor, label: Tensor) -> float | None:
    """By how many standard deviations nearest neighbors share their label more often than strangers do."""
    if len(label) < FEWEST_NEIGHBORS or len(label.unique()) < 2:
        return None
    flat = inputs.detach().float().nan_to_num().flatten(1)
    distance = torch.cdist(flat, flat).fill_diagonal_(float("inf"))
    same = float((label[distance.argmin(1)] == label).float().mean())
    share = label.bincount().float() / len(label)
    strangers = float(share.square().sum())
    return (same - strangers) / sqrt(strangers * (1 - strangers) / len(label))


def measure_capsules(subject: Subject) -> tuple[list[Stage], list[Layer]]:
    """The capsules of every stage and the couplings of every layer, in evaluation mode."""
    layers, _ = trace_with_logits(subject.model, *subject.batch.inputs)
    stages = [_measure_stage("primary capsules", layers[0].children, 0.0)]
    for layer in layers:
        last = layer.number == len(layers)
        name = "class capsules" if last else f"capsules of layer {layer.number}"
        stages.append(_measure_stage(name, layer.parents, float(getattr(layer.layer.routing, "eps", 0.0))))
    return stages, [_measure_layer(layer, len(layers)) for layer in layers]


def _measure_stage(name: str, capsules: Capsules, floor: float) -> Stage:
    pose = capsules.pose.detach().float()
    length = pose.square().sum(-1).sqrt()
    presence = highest = lowest = ()
    squashed, at_floor = False, None
    if capsules.score is not None:
        there = capsules.presence.detach().float()
        by_type = there.reshape(-1, there.shape[-1])
        presence, highest, lowest = (
            tuple(found.tolist()) for found in (by_type.mean(0), by_type.amax(0), by_type.amin(0))
        )
        squashed = torch.allclose(length, there, atol=1e-3)
    if capsules.variance is not None and floor > 0:
        at_floor = float((capsules.variance < FLOOR * floor).float().mean())
    size = float(length.square().mean().sqrt())
    return Stage(name, presence, highest, lowest, size, squashed, float((length > LONG).float().mean()), at_floor)


def name_layer(number: int, count: int) -> str:
    return "class layer" if number == count else f"layer {number}"


def _measure_layer(layer: LayerTrace, count: int) -> Layer:
    name = name_layer(layer.number, count)
    if not layer.couples or layer.layer.vote_shape.parents == 1:
        return Layer(name, layer.routing, False, (), (), (), None)
    couplings = [layer.couplings(number).detach() for number in range(len(layer.iterations))]
    entropy = tuple(float(layer.entropy(number).mean()) for number in range(len(couplings)))
    mass = couplings[-1].sum((0, 1, 2))
    mass = mass / mass.sum().clamp_min(1e-30)
    change = tuple(_distance(one, other) for one, other in pairwise(couplings))
    swing = None
    if len(couplings) > 2 and change[-1] > 0:
        swing = change[-1] - _distance(couplings[-1], couplings[-3])
    moved = _distance(couplings[0], couplings[-1])
    return Layer(name, layer.routing, True, entropy, tuple(mass.tolist()), change, swing, moved)


def _distance(one: Float[Tensor, "b q i j"], other: Float[Tensor, "b q i j"]) -> float:
    """Mean over the children of what moves from one parent to another, as a part of what they give."""
    return float((one - other).abs().sum() / (one + other).sum().clamp_min(1e-30))


def measure_parts(subject: Subject) -> list[PartGradient]:
    """The gradient of the whole loss in every part of the network that has parameters of its own."""
    losses = subject.losses()
    subject.model.zero_grad()
    total = losses.classes + losses.reconstruction
    if total.requires_grad:
        total.backward()
    untaught = set() if subject.reconstruction else _inside_decoders(subject.model) | _unread_votes(subject.model)
    found = []
    for name, part in subject.model.named_modules():
        own = [parameter for parameter in part.parameters(recurse=False) if parameter.requires_grad]
        if own and name not in untaught:
            grads = [parameter.new_zeros(()) if parameter.grad is None else parameter.grad for parameter in own]
            size = sqrt(sum(float(grad.double().square().sum()) for grad in grads) / sum(map(Tensor.numel, own)))
            found.append(PartGradient(name or "the module", size, size))
    subject.model.zero_grad()
    return found


def _inside_decoders(model: nn.Module) -> set[str]:
    """Names of the modules that only a reconstruction loss teaches."""
    decoders = [name for name, part in model.named_modules() if isinstance(part, Decoder)]
    return {name for name, _ in model.named_modules() for decoder in decoders if f"{name}.".startswith(f"{decoder}.")}


def _unread_votes(model: nn.Module) -> set[str]:
    """The last capsule layer, if the scores of its routing do not come from its votes."""
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, CapsuleLayer)]
    return {name for name, layer in layers[-1:] if not layer.routing.votes_score}


def measure_iterations(subject: Subject) -> list[tuple[float, ...]]:
    """For every capsule layer: the norm of the gradient in its vote weights with 1, 2, … iterations of its routing."""
    net = require_capsules(subject.model)
    layers = [part for part in net.modules() if isinstance(part, CapsuleLayer)]
    if net.num_iters is not None:  # all layers are routed together
        return _transpose([_weight_gradients(subject, layers, iterating(net, n + 1)) for n in range(net.num_iters)])
    found: list[tuple[float, ...]] = []
    for layer in layers:
        routing = layer.routing
        numbers = range(1, routing.num_iters + 1) if routing.iterates else ()
        grown = [_weight_gradients(subject, [layer], routing.iterating(number)) for number in numbers]
        found.append(tuple(norm for (norm,) in grown))
    return found


def _transpose(rows: list[list[float]]) -> list[tuple[float, ...]]:
    return [tuple(column) for column in zip(*rows, strict=True)]


def _weight_gradients(
    subject: Subject, layers: list[CapsuleLayer], iterations: AbstractContextManager[None]
) -> list[float]:
    weights = [layer.weight.requires_grad_() for layer in layers]  # of a copy: one may be frozen
    with iterations:
        loss = subject.losses().classes
        grads = torch.autograd.grad(loss, weights, allow_unused=True) if loss.requires_grad else [None] * len(weights)
    return [0.0 if grad is None else float(grad.norm()) for grad in grads]


@torch.no_grad()
def measure_losses(subject: Subject) -> LossStatistics:
    """The losses, and that of a network which cannot tell the classes apart."""
    losses = subject.losses()
    chance = measure_chance(subject, losses.logits.shape[-1])
    correct = subject.loss.correct(losses.logits, subject.batch.label).float().mean()
    return LossStatistics(float(losses.classes), chance, float(correct), float(losses.reconstruction))


def measure_chance(subject: Subject, classes: int) -> float:
    """The lowest classification loss of a network that gives all classes the same logit."""
    label, target = subject.batch.label, subject.batch.target
    even = (torch.full((len(label), classes), logit, device=label.device) for logit in EVEN)
    return min(float(subject.loss(logits, target, subject.step)) for logits in even)


def weigh_reconstruction(subject: Subject, chance: float) -> float | None:
    """The reconstruction loss of a decoder that always decodes the mean image, as a part of the loss of equal logits;
    ``None`` where nothing is reconstructed."""
    image = subject.batch.image
    if not subject.reconstruction or image is None or len(image) < 2:
        return None
    constant = (image - image.mean(0)).square().flatten(1).sum(-1).mean()
    return subject.reconstruction * float(constant) / max(chance, 1e-30)
