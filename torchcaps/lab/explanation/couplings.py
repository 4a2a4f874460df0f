"""Which parts were routed to which whole: shares of every position of the image, flows from layer to layer, entropy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torchcaps.lab.explanation.figures import shown
from torchcaps.lab.explanation.places import grid_on_image
from torchcaps.lab.explanation.records import FigureRecord, as_array, class_names
from torchcaps.lab.tracing.networks import require_capsules
from torchcaps.lab.tracing.traces import LayerTrace, trace_with_logits


@dataclass(frozen=True)
class Couplings(FigureRecord):
    """Where the parts of images went, at each iteration ``t``.

    ``share`` is what part of a position's presence goes to each class through all layers: the shares of a position
    sum to one (to less where a routing lets parts belong to nothing, to zero where no parent looks). ``presence`` is
    the mean presence of a position's capsules. ``extent`` is where the grid lies on the image, in pixels: left, right,
    bottom, top.

    ``flow`` has for each layer what goes from each type of child to each type of parent, as parts of all presence;
    ``entropy`` how evenly children are shared out, 0 to 1, and ``layer_iterations`` how many of its iterations count:
    layers with fewer repeat their last.
    """

    share: Float[np.ndarray, "n t row column k"]
    presence: Float[np.ndarray, "n row column"]
    extent: tuple[float, float, float, float]
    image: Float[np.ndarray, "n y x color"]
    label: Int[np.ndarray, "n m"]  # class numbers, -1 where there are fewer than the most
    probability: Float[np.ndarray, "n k"]  # of the classes, by the network's logits
    flow: tuple[Float[np.ndarray, "n t _ _"], ...]  # from types of children to types of parents
    entropy: Float[np.ndarray, "layer t n"]
    layer_iterations: tuple[int, ...]
    routings: tuple[str, ...]
    classes: tuple[str, ...]
    couples: bool = True  # whether all routings have couplings; where not, shares of agreement are in their place


@torch.no_grad()
def measure_couplings(
    model: nn.Module,
    images: Float[Tensor, "n channel row column"],
    labels: Int[Tensor, "n"] | Float[Tensor, "n k"] | None = None,
    classes: Sequence[str] | None = None,
) -> Couplings:
    """Trace a network on images. ``labels`` are class numbers or rows with a one for each class that is there."""
    net = require_capsules(model)
    grid = grid_on_image(net, images)
    layers, logits = trace_with_logits(net, images)
    rows, columns = grid.shape
    iterations = max(len(layer.iterations) for layer in layers)
    shares = [class_shares(layers, t) for t in range(iterations)]
    share, presence = [], layers[0].presence.unflatten(1, (rows * columns, -1))
    weight = presence / presence.sum(-1, keepdim=True).clamp_min(1e-30)
    for each in shares:
        by_type = each.unflatten(1, (rows * columns, -1))
        share.append((weight.unsqueeze(-1) * by_type).sum(2).unflatten(1, (rows, columns)))
    flows = [flows_between(layers, t) for t in range(iterations)]
    return Couplings(
        as_array(torch.stack(share, 1)),
        as_array(presence.mean(-1).unflatten(1, (rows, columns))),
        grid.extent,
        shown(images),
        label_numbers(labels, len(images)),
        as_array(logits.softmax(-1)),
        tuple(as_array(torch.stack(of_layer, 1)) for of_layer in zip(*flows, strict=True)),
        np.stack([[as_array(layer.entropy(_at(layer, t))) for t in range(iterations)] for layer in layers]),
        tuple(len(layer.iterations) for layer in layers),
        tuple(layer.routing for layer in layers),
        class_names(classes, logits.shape[-1]),
        all(layer.couples for layer in layers),
    )


def class_shares(layers: Sequence[LayerTrace], iteration: int = -1) -> Float[Tensor, "b i k"]:
    """What part of each primary capsule goes to each class: couplings of all layers, one after the other."""
    last = layers[-1]
    classes = last.parents.pose.shape[-2]
    share = torch.eye(classes, device=last.parents.pose.device).expand(len(last.parents.pose), -1, -1)
    for layer, above in zip(reversed(layers), (None, *reversed(layers)), strict=False):
        if above is not None and above.presence.shape[1] != layer.parents.pose[..., 0].flatten(1).shape[1]:
            raise ValueError(
                f"layers {layer.number} and {above.number} do not follow each other, so parts cannot be followed "
                "through all layers; trace() has the couplings of each"
            )
        share = layer.shares(share.to(layer.iterations[0].coupling.dtype), _at(layer, iteration))
    return share


def flows_between(layers: Sequence[LayerTrace], iteration: int = -1) -> list[Float[Tensor, "b _ _"]]:
    """What goes from type to type in each layer, as parts of all presence of the primary capsules: what comes into a
    capsule goes on from it."""
    mass = layers[0].presence / layers[0].presence.sum(-1, keepdim=True).clamp_min(1e-30)
    flows = []
    for layer in layers:
        at = _at(layer, iteration)
        types_below, types_above = layer.children.pose.shape[-2], layer.parents.pose.shape[-2]
        coupling = layer.couplings(at)
        positions = coupling.shape[1]
        sent = layer.sent(mass, at)  # b q i j, in the order of the votes
        mass = rearrange(sent.sum(2), "b q j -> b (q j)", q=positions)
        flows.append(_by_type(layer, sent, types_below, types_above))
    return flows


def _by_type(layer: LayerTrace, sent: Float[Tensor, "b q i j"], below: int, above: int) -> Float[Tensor, "b t j"]:
    order = "(t place)" if layer.type_first else "(place t)"
    total = rearrange(sent.sum(1), f"b {order} j -> b place t j", t=below).sum(1)
    assert total.shape[-1] == above
    return total


def _at(layer: LayerTrace, iteration: int) -> int:
    """A layer with fewer iterations than others stays at its last."""
    return min(iteration, len(layer.iterations) - 1)


def label_numbers(labels: Tensor | None, count: int) -> Int[np.ndarray, "n m"]:
    """Class numbers of each example, filled up with -1."""
    if labels is None:
        return np.full((count, 1), -1, dtype=np.int64)
    if labels.ndim == 1:
        return as_array(labels.long())[:, None]
    there = [torch.nonzero(row > 0.5).flatten().tolist() for row in labels]
    most = max(1, *(len(row) for row in there))
    return np.array([row + [-1] * (most - len(row)) for row in there], dtype=np.int64)


@dataclass(frozen=True)
class TokenUse(FigureRecord):
    """How much of each token, at each layer of the language model, a network uses for each class, and how much it
    ignores (the D-step of Heinsen 2019, through all layers of capsules): the two sum to the token's presence."""

    use: Float[np.ndarray, "token depth k"]
    ignore: Float[np.ndarray, "token depth k"]
    probability: Float[np.ndarray, "k"]
    tokens: tuple[str, ...]
    classes: tuple[str, ...]


@torch.no_grad()
def measure_token_use(
    model: nn.Module,
    states: Float[Tensor, "token depth embedding"],
    tokens: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    mask: Bool[Tensor, "token"] | None = None,
) -> TokenUse:
    """Trace a network for text on one sentence's hidden states."""
    net = require_capsules(model)
    count, depth = states.shape[:2]
    if tokens is not None and len(tokens) != count:
        raise ValueError(f"{len(tokens)} tokens for hidden states of {count}; give one for each")
    layers, (logits,) = trace_with_logits(net, states.unsqueeze(0), None if mask is None else mask.unsqueeze(0))
    first = layers[0].children.pose
    if first.ndim != 3 or first.shape[1] != count * depth:
        raise ValueError(f"this network has no capsule for each token and layer; its first are {tuple(first.shape)}")
    presence = layers[0].presence[0]
    use = presence.unsqueeze(-1) * class_shares(layers)[0]
    apart = {"token": count, "depth": depth}
    ignore = presence.unsqueeze(-1) - use
    return TokenUse(
        as_array(rearrange(use, "(token depth) k -> token depth k", **apart)),
        as_array(rearrange(ignore, "(token depth) k -> token depth k", **apart)),
        as_array(logits.softmax(-1)),
        tuple(tokens) if tokens is not None else tuple(str(number + 1) for number in range(count)),
        class_names(classes, logits.shape[-1]),
    )
