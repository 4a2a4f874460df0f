"""Layers work under compilers, exporters, function transforms and autocast, with any routing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from tests.support import SINGLE_VALUE, assert_near, assert_same, numbers

Layer = tc.DenseCapsules | tc.ConvCapsules | tc.ClassCapsules
MAKERS: dict[str, tuple[Callable[[str], Layer], tuple[int, ...]]] = {
    "dense": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing), (3, 5)),
    "shared": (lambda routing: tc.DenseCapsules(None, (2, 3), 4, (2, 3), routing), (3, 5)),
    "variable": (lambda routing: tc.DenseCapsules(None, (2, 3), None, (2, 3), routing), (3, 5)),
    "convolution": (lambda routing: tc.ConvCapsules(2, (2, 3), 4, (2, 3), 3, 2, routing), (3, 5, 5, 2)),
    "classes": (lambda routing: tc.ClassCapsules(2, (2, 3), 4, (2, 3), routing), (3, 3, 3, 2)),
    "normed": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing, vote_norm="component"), (3, 5)),
}
every_layer = pytest.mark.parametrize("kind", MAKERS)
every_routing = pytest.mark.parametrize("routing", tc.routing.ROUTINGS)


def make(kind: str, routing: str, dtype: torch.dtype = torch.float64) -> tuple[Layer, tc.Capsules]:
    torch.manual_seed(0)
    builder, shape = MAKERS[kind]
    layer = builder(routing).to(dtype)
    return layer, tc.Capsules(numbers(*shape, 6, dtype=dtype), numbers(*shape, seed=1, dtype=dtype))


def parts(capsules: tc.Capsules) -> tuple[Tensor, ...]:
    return tuple(part for part in capsules if part is not None)


# Compiling takes seconds, so not every pair is tried: every routing in the three kinds of layers that differ in their
# votes, and the other layers once.
PAIRS = [(kind, routing) for kind in ("dense", "shared", "convolution") for routing in tc.routing.ROUTINGS]
PAIRS += [("variable", "heinsen"), ("classes", "em"), ("normed", "fm")]


def assert_compiles(kind: str, routing: str, backend: str) -> None:
    layer, capsules = make(kind, routing)
    if hasattr(layer.routing, "num_iters"):
        layer.routing.num_iters = 2
        if isinstance(layer.routing, tc.routing.EMRouting):
            layer.routing.inverse_temperature = tc.routing.rising_inverse_temperature(2)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert capsules.score is not None
    assert_same(
        lambda pose, score: parts(compiled(tc.Capsules(pose, score))),
        lambda pose, score: parts(layer(tc.Capsules(pose, score))),
        [capsules.pose, capsules.score],
    )


@pytest.mark.parametrize(("kind", "routing"), PAIRS)
def test_compiles_without_a_break(kind: str, routing: str) -> None:
    assert_compiles(kind, routing, "aot_eager")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # inside torch's own compiler
@pytest.mark.parametrize(("kind", "routing"), [("dense", "dynamic"), ("shared", "heinsen")])
def test_compiles_to_machine_code(kind: str, routing: str) -> None:
    assert_compiles(kind, routing, "inductor")


@every_layer
@every_routing
def test_exports_with_any_batch_size(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    layer.eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(layer, (capsules,), dynamic_shapes=(tc.Capsules({0: batch}, {0: batch}, None),))
    assert capsules.score is not None
    twice = tc.Capsules(torch.cat([capsules.pose] * 2), torch.cat([capsules.score] * 2))
    for one, other in zip(parts(program.module()(twice)), parts(layer(twice)), strict=True):
        assert_near(one, other)


@every_layer
@every_routing
def test_maps_over_examples(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    layer.eval()
    mapped = torch.func.vmap(lambda pose, score: parts(layer(tc.Capsules(pose, score))))(capsules.pose, capsules.score)
    for one, other in zip(mapped, parts(layer(capsules)), strict=True):
        assert_near(one, other)


@every_layer
@every_routing
def test_gradients_of_single_examples_add_up(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    layer.eval()
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], pose: Tensor, score: Tensor) -> Tensor:
        out = torch.func.functional_call(layer, parameters, (tc.Capsules(pose, score),))
        return out.pose.cos().sum()

    single = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, capsules.pose, capsules.score)
    layer(capsules).pose.cos().sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.grad is not None and parameter.grad.abs().max() > 1e-9:
            assert_near(single[name].sum(0), parameter.grad)


@every_layer
@every_routing
def test_routes_in_single_precision_under_autocast(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing, torch.float32)
    assert capsules.score is not None
    low = tc.Capsules(capsules.pose.bfloat16().requires_grad_(), capsules.score.bfloat16())
    assert low.score is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = layer(low)
    assert result.pose.dtype == torch.float32
    exact = layer(tc.Capsules(low.pose.float(), low.score.float()))
    assert_near(result.pose, exact.pose, SINGLE_VALUE)
    result.pose.sum().backward()
    assert low.pose.grad is not None
    assert bool(low.pose.grad.isfinite().all())


@every_layer
@every_routing
def test_saves_and_loads(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    other, _ = make(kind, routing)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(capsules).pose, other.eval()(capsules).pose)
