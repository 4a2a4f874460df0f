"""Whole models in the benchmark: one training step of a network, against the same network with literal routing.

The opponents have the same backbone, primary capsules, weights and head; only the routing is written formula by formula
on the tensor of all votes, as published code has it. The step without any routing stands beside them: backbone and
primary capsules, which both sides have.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import opponents
from benchmarks.cases import OURS, Case, Target, Work
from benchmarks.operations import ATTENTION, DYNAMIC, GAUSSIAN, count_operations
from torchcaps import models
from torchcaps.capsules import Capsules
from torchcaps.layers import CapsuleLayer, ConvCapsules, DenseCapsules
from torchcaps.models import CapsuleNet
from torchcaps.primary import flatten_grid

LITERAL = "literal routing"
NO_ROUTING = "backbone and primary capsules alone"


def _training_step(name: str, batch: int, logits_of: Callable[[CapsuleNet, Tensor], Tensor]) -> Work:
    """Forward, cross-entropy and backward into all weights."""
    torch.manual_seed(0)
    model = models.create(name)
    assert isinstance(model, CapsuleNet)
    inputs = torch.rand(batch, *model.image)
    labels = torch.arange(batch) % model.classes
    weights = list(model.parameters())

    def work() -> object:
        # CapsNet's decoder takes no part.
        return torch.autograd.grad(F.cross_entropy(logits_of(model, inputs), labels), weights, allow_unused=True)

    return work


def _step_without_routing(name: str, batch: int) -> Work:
    """The first capsules, and back into the weights that they come from."""
    torch.manual_seed(0)
    model = models.create(name)
    assert isinstance(model, CapsuleNet)
    inputs = torch.rand(batch, *model.image)
    weights = list(model.parameters())

    def work() -> object:
        capsules = model.first_capsules(inputs)
        outputs = [capsules.pose] if capsules.score is None else [capsules.pose, capsules.score]
        return torch.autograd.grad(outputs, weights, [torch.ones_like(each) for each in outputs], allow_unused=True)

    return work


def count_model_operations(name: str, batch: int, passes: float) -> float:
    """Multiplications and additions of a training step: those of backbone and primary capsules, convolutions the direct
    way, and those of every layer's votes, with so many passes over them."""
    model = models.create(name)
    assert isinstance(model, CapsuleNet)
    model = model.to("meta")
    weights = list(model.parameters())
    with FlopCounterMode(display=False) as counter:
        capsules = model.first_capsules(torch.empty(batch, *model.image, device="meta"))
        outputs = [capsules.pose] if capsules.score is None else [capsules.pose, capsules.score]
        torch.autograd.grad(outputs, weights, [torch.ones_like(each) for each in outputs], allow_unused=True)
    operations = float(counter.get_total_flops())
    for layer in model.layers:
        assert isinstance(layer, CapsuleLayer)
        if isinstance(layer, DenseCapsules) and capsules.pose.ndim == 5:
            capsules = flatten_grid(capsules, type_first=model.type_first)
        operations += count_operations(layer.votes(capsules).shape.numel(), layer.columns, passes)
        capsules = layer(capsules)
    return operations


def _case(
    title: str,
    name: str,
    batch: int,
    literal: Callable[[CapsuleNet, Tensor], Tensor],
    *,
    passes: float,  # over the votes
    faster: float,
    memory_limit: float,
) -> Case:
    return Case(
        title,
        {
            OURS: lambda: _training_step(name, batch, lambda model, inputs: model(inputs).logits),
            LITERAL: lambda: _training_step(name, batch, literal),
            NO_ROUTING: lambda: _step_without_routing(name, batch),
        },
        (Target(LITERAL, faster),),
        memory_limit,
        lambda: count_model_operations(name, batch, passes),
    )


def literal_heinsen(model: CapsuleNet, inputs: Tensor) -> Tensor:
    """The logits of a network of Heinsen's, both layers routed by the literal formula."""
    capsules = model.first_capsules(inputs)
    for layer in model.layers:
        assert isinstance(layer, DenseCapsules)
        assert layer.bias is not None
        if capsules.pose.ndim == 5:
            capsules = flatten_grid(capsules, type_first=model.type_first)
        assert capsules.score is not None
        score, mean, variance = opponents.heinsen_literal(
            capsules.score,
            rearrange(capsules.pose, "b i (c d) -> b i c d", c=layer.rows),
            layer.weight,
            layer.bias,
            layer.routing.get_parameter("beta_use"),
            layer.routing.get_parameter("beta_ignore"),
            layer.routing.num_iters,
            vars(layer.routing)["eps"],
        )
        capsules = Capsules(mean.flatten(-2), score, variance.flatten(-2))
    return model.head(capsules)


def literal_dynamic(model: CapsuleNet, inputs: Tensor) -> Tensor:
    """The logits of CapsNet, routed by broadcasting products over all votes."""
    (layer,) = model.layers
    assert isinstance(layer, DenseCapsules)
    capsules = flatten_grid(model.first_capsules(inputs), type_first=model.type_first)
    pose = opponents.dynamic_broadcast(capsules.pose, layer.weight, layer.routing.num_iters)
    length = pose.square().sum(-1).sqrt()
    return model.head(Capsules(pose, length.logit()))


def literal_inverted_attention(model: CapsuleNet, inputs: Tensor) -> Tensor:
    """The logits of a network of Tsai's: concurrent routing with the votes of every layer built in every iteration, as
    the authors' code does."""
    assert model.num_iters is not None
    poses = [model.first_capsules(inputs).pose]
    layers = [layer for layer in model.layers if isinstance(layer, CapsuleLayer)]
    for layer in layers:
        poses.append(_literal_step(layer, poses[-1], None))
    for _ in range(model.num_iters - 1):
        above = zip(layers, poses[:-1], poses[1:], strict=True)
        poses = [poses[0], *(_literal_step(layer, below, parents) for layer, below, parents in above)]
    return model.head(Capsules(poses[-1]))


def _literal_step(layer: CapsuleLayer, below: Tensor, parents: Tensor | None) -> Tensor:
    weight = layer.get_parameter("weight")
    if isinstance(layer, ConvCapsules):
        votes = opponents.unfolded_votes(below, weight, layer.window.stride[0])
        side = (below.shape[1] - weight.shape[0]) // layer.window.stride[0] + 1
    else:
        children = rearrange(below, "b ... (c d) -> b (...) 1 c d", c=layer.rows)
        votes, side = (children @ weight).flatten(-2), None
    if parents is None:
        pose = votes.sum(1) / votes.shape[2]  # equal couplings
    else:
        flat = rearrange(parents, "... j p -> (...) j p")
        pose = opponents.inverted_attention_literal(votes, flat)
    if side is not None:
        pose = rearrange(pose, "(b y x) j p -> b y x j p", y=side, x=side)
    return layer.routing.get_submodule("norm")(pose)


def heinsen_smallnorb() -> Case:
    title = "Heinsen's smallNORB network, one training step of 20 pairs of 96×96"
    name = "heinsen2019_smallnorb"
    return _case(title, name, 20, literal_heinsen, passes=GAUSSIAN, faster=30.0, memory_limit=1.2e9)


def _tsai(title: str, name: str, faster: float) -> Case:
    title = f"{title}, one training step of 32 images, 2 iterations"
    return _case(title, name, 32, literal_inverted_attention, passes=ATTENTION, faster=faster, memory_limit=1.5e9)


def tsai_cifar10() -> Case:
    return _tsai("Tsai's simple CIFAR-10 network", "tsai2020_cifar10", 30.0)


def tsai_cifar10_resnet() -> Case:
    return _tsai("Tsai's ResNet CIFAR-10 network", "tsai2020_cifar10_resnet", 20.0)


def capsnet_mnist() -> Case:
    title = "CapsNet on MNIST, one training step of 64 images, 3 iterations"
    return _case(title, "sabour2017_mnist", 64, literal_dynamic, passes=DYNAMIC, faster=3.0, memory_limit=1.5e9)


MODELS: dict[str, Callable[[], Case]] = {
    "heinsen-smallnorb-model": heinsen_smallnorb,
    "tsai-cifar10-model": tsai_cifar10,
    "tsai-cifar10-resnet-model": tsai_cifar10_resnet,
    "capsnet-mnist-model": capsnet_mnist,
}
