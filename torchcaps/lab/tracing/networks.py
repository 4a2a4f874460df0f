"""Networks that can be looked into: those of the registry, and any module that contains capsule layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from einops import rearrange
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
                children, type_first = _unflattened(part, capsules, maps)
                calls.append(Call(part, children, returned, type_first))
            if isinstance(returned, Capsules) and returned.pose.ndim == 5:
                maps.append(returned)

        with ExitStack() as stack:
            for part in self.module.modules():
                stack.enter_context(_removing(part.register_forward_hook(after, with_kwargs=True)))
                if isinstance(part, CapsuleLayer):
                    stack.enter_context(_removing(part.register_forward_pre_hook(before, with_kwargs=True)))
            output = self.module(inputs) if mask is None else self.module(inputs, mask)
        if not calls:
            raise ValueError(f"{describe(self)} did not call its capsule layers on these inputs")
        return calls, output


@contextmanager
def _removing(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def _unflattened(layer: CapsuleLayer, given: Capsules, maps: Sequence[Capsules]) -> tuple[Capsules, bool]:
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
    """Whether these inputs are images to the model: hidden states of text have four axes too, but their capsules have
    no grid."""
    if inputs.ndim != 4 or not isinstance(model, CapsuleNet):
        return inputs.ndim == 4
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
