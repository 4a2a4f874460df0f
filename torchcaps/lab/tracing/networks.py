"""Networks that can be looked into: those of the registry, and any module that contains capsule layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.decoders import Decoder
from torchcaps.heads import ScoreHead
from torchcaps.layers import CapsuleLayer, DenseCapsules
from torchcaps.models import CapsuleNet, Model, Prediction
from torchcaps.routing import Trace

SHORT = 1e-12  # squared length below which a pose counts as this long


class Call(NamedTuple):
    """One call of a capsule layer. ``children`` are a map where the layer was given the flattened form of one;
    ``type_first`` says that it was flattened type by type."""

    layer: CapsuleLayer
    children: Capsules
    parents: Capsules
    type_first: bool


class HookedNet(Model):
    """A module that contains capsule layers, as a network to explain: what its layers are given and return is seen
    through hooks, in the order in which they are called."""

    num_iters: int | None = None  # how CapsuleNet says that its layers are routed one after the other

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.untrained = getattr(module, "untrained", ())

    @property
    def layers(self) -> list[CapsuleLayer]:
        """The capsule layers, in the order in which the module holds them."""
        return [layer for layer in self.module.modules() if isinstance(layer, CapsuleLayer)]

    @property
    def decoder(self) -> Decoder | None:
        return next((part for part in self.module.modules() if isinstance(part, Decoder)), None)

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Prediction:
        calls, output = self.watch(inputs, mask)
        return Prediction(_logits_in(output, calls[-1].parents), calls[-1].parents)

    def first_capsules(self, inputs: Tensor, mask: Tensor | None = None) -> Capsules:
        """What the first capsule layer is given, as a map if it was one."""
        return self.watch(inputs, mask)[0][0].children

    def class_logits(self, output: Any, parents: Capsules) -> Tensor:
        """A logit for each of the last capsules: the module's own where it returns as many."""
        logits = _logits_in(output, parents)
        return logits if logits.shape[-1] == parents.pose.shape[-2] else capsule_logits(parents)

    def watch(
        self, inputs: Tensor, mask: Tensor | None = None, new_trace: Callable[[CapsuleLayer], Trace] | None = None
    ) -> tuple[list[Call], Any]:
        """Run the module: the calls of its capsule layers, and what it returns. ``new_trace`` makes the trace that a
        call of a layer is given."""
        calls: list[Call] = []
        maps: list[Capsules] = []  # of capsules, as any part of the module returned them

        def before(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            assert isinstance(layer, CapsuleLayer)
            return given, named if new_trace is None else {**named, "trace": new_trace(layer)}

        def after(part: nn.Module, given: tuple[Any, ...], named: dict[str, Any], returned: Any) -> None:
            if isinstance(part, CapsuleLayer):
                capsules = given[0] if given else named["capsules"]
                children, type_first = _unflatten(part, capsules, maps)
                calls.append(Call(part, children, returned, type_first))
            if isinstance(returned, Capsules) and returned.pose.ndim == 5:
                maps.append(returned)

        with ExitStack() as stack:
            for part in self.module.modules():
                stack.enter_context(_remove_after(part.register_forward_hook(after, with_kwargs=True)))
                if isinstance(part, CapsuleLayer):
                    stack.enter_context(_remove_after(part.register_forward_pre_hook(before, with_kwargs=True)))
            output = self.module(inputs) if mask is None else self.module(inputs, mask)
        if not calls:
            raise ValueError(f"{describe(self)} did not call its capsule layers on these inputs")
        return calls, output


@contextmanager
def _remove_after(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def _unflatten(layer: CapsuleLayer, given: Capsules, maps: Sequence[Capsules]) -> tuple[Capsules, bool]:
    """The map that a set of capsules was flattened from, if there was one, and whether type by type."""
    if not isinstance(layer, DenseCapsules) or given.pose.ndim != 3:
        return given, False
    for found in reversed(maps):
        if found.pose.numel() != given.pose.numel() or found.pose.shape[-1] != given.pose.shape[-1]:
            continue
        for order in ("y x n", "n y x"):
            if torch.equal(rearrange(found.pose, f"b y x n d -> b ({order}) d"), given.pose):
                return found, order == "n y x"
    return given, False


def _logits_in(output: Any, parents: Capsules) -> Tensor:
    """The logits in what a module returns: a prediction, capsules, a tensor ``(b, k)``, or the first of these in a
    tuple or dictionary; the scores of the last capsules where there are none."""
    if isinstance(output, Prediction):
        return output.logits
    if isinstance(output, Capsules):
        return capsule_logits(output)
    if isinstance(output, Tensor) and output.ndim == 2 and output.is_floating_point():
        return output
    inside = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    for part in inside:
        if isinstance(part, Prediction | Capsules) or (isinstance(part, Tensor) and part.ndim == 2):
            return _logits_in(part, parents)
    return capsule_logits(parents)


def capsule_logits(capsules: Capsules) -> Tensor:
    """The scores of capsules; the logarithm of their squared lengths where they have none."""
    if capsules.score is not None:
        return ScoreHead()(capsules)
    return capsules.pose.square().sum(-1).clamp_min(SHORT).log()


Network = CapsuleNet | HookedNet


def require_capsules(model: nn.Module) -> Network:
    """The model as a network of capsules, if it contains any."""
    if isinstance(model, Network):
        return model
    if not any(isinstance(part, CapsuleLayer) for part in model.modules()):
        raise ValueError(
            f"{describe(model)} has no capsules, so there is nothing that is routed; give a module that contains "
            "capsule layers, such as DenseCapsules"
        )
    return HookedNet(model)


def require_decoder(model: nn.Module) -> tuple[Network, Decoder]:
    """The network and its decoder, if it has one that was trained."""
    net = require_capsules(model)
    if net.decoder is None:
        raise ValueError(f"this {describe(model)} has no decoder; {decoder_advice(model)}")
    if "decoder" in net.untrained:
        raise ValueError(f"the decoder of this {describe(model)} was not trained; {decoder_advice(model)}")
    return net, net.decoder


def decoder_advice(model: nn.Module) -> str:
    """How to get a decoder that reconstructs; the options are those that the model has."""
    origin = model.origin if isinstance(model, Model) else None
    if origin is None:
        return "give it one, and train it with a weight for the reconstruction loss"
    if any(field.name == "decoder" for field in fields(origin.config)):
        return "train with --model.decoder --loss.reconstruction 0.0005"
    return "this model cannot have one; train another, such as the recipe sabour2017/mnist"


def describe(model: nn.Module) -> str:
    """What a model is called in messages: its name in the registry, or its class."""
    if isinstance(model, HookedNet):
        return describe(model.module)
    origin = model.origin if isinstance(model, Model) else None
    return type(model).__name__ if origin is None else origin.name


@torch.no_grad()
def takes_images(model: nn.Module, inputs: Tensor) -> bool:
    """Whether these inputs are images to the model: hidden states of text have four axes too, but any number of tokens
    along the first, and their capsules have no grid."""
    if inputs.ndim != 4 or not isinstance(model, CapsuleNet):
        return inputs.ndim == 4 and getattr(model, "accepts", inputs.shape)[0] is not None
    with evaluating(model):
        return model.first_capsules(inputs[:1]).pose.ndim == 5


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, whatever the mode before and after."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


NOISES = 4  # images of noise by which the places are found


class GridOnImage(NamedTuple):
    """The grid of primary capsules as it lies on the image: the center of the first position and the step from one to
    the next, for rows and columns, in pixels."""

    shape: tuple[int, int]
    start: tuple[float, float]
    step: tuple[float, float]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of the grid in pixels, as matplotlib's ``imshow`` wants it."""
        (rows, columns), (top, left), (down, across) = self.shape, self.start, self.step
        return (
            left - across / 2,
            left + (columns - 0.5) * across,
            top + (rows - 0.5) * down,
            top - down / 2,
        )


def grid_on_image(net: Network, images: Float[Tensor, "b channel row column"]) -> GridOnImage:
    """Where each position of the primary capsules looks: the center of the pixels that change its poses, found by
    gradients on images of noise, on a straight line through all positions.

    A grid of 6×6 is rarely an even division of the image: convolutions without padding look at its middle alone.
    """
    height, width = images.shape[-2:]
    with evaluating(net), torch.enable_grad():
        noise = torch.rand(NOISES, *images.shape[1:], generator=torch.Generator().manual_seed(0))
        low, high = images.amin(), images.amax()
        seen = (low + (high - low) * noise.to(images)).requires_grad_(True)
        pose = net.first_capsules(seen).pose
        if pose.ndim != 5:
            raise ValueError("these primary capsules have no grid, so none of them has a place on the image")
        rows, columns = pose.shape[1:3]
        down = _line([_center(pose[:, row, columns // 2], seen, rows=True) for row in range(rows)], height)
        across = _line([_center(pose[:, rows // 2, column], seen, rows=False) for column in range(columns)], width)
    return GridOnImage((rows, columns), (down[0], across[0]), (down[1], across[1]))


def _center(pose: Tensor, images: Tensor, *, rows: bool) -> float | None:
    (gradient,) = torch.autograd.grad(pose.square().sum(), images, retain_graph=True)
    weight = gradient.abs().sum((0, 1)).sum(1 if rows else 0).double()
    total = weight.sum()
    if not bool(total > 0):  # nothing there reacts to the image, as where all is dark and rectified
        return None
    return float((weight * torch.arange(len(weight), device=weight.device)).sum() / total)


def _line(centers: list[float | None], side: int) -> tuple[float, float]:
    """First place and step of the straight line that fits best; evenly spaced where nothing is known."""
    count = len(centers)
    even = side / count
    known = [(number, center) for number, center in enumerate(centers) if center is not None]
    if not known:
        return (even - 1) / 2, even
    mean_number = sum(number for number, _ in known) / len(known)
    mean_center = sum(center for _, center in known) / len(known)
    spread = sum((number - mean_number) ** 2 for number, _ in known)
    if spread == 0.0:
        return mean_center - mean_number * even, even
    step = sum((number - mean_number) * (center - mean_center) for number, center in known) / spread
    step = max(step, even / 4)  # where every position sees the whole image, its place says little
    return mean_center - mean_number * step, step
