"""Layers work under compilers, exporters, tracers, function transforms and autocast, with any routing."""

from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian

import torchcaps as tc
from tests.support import THOROUGH, assert_near, assert_same, converge_soon, list_pairs, numbers

Layer = tc.DenseCapsules | tc.ConvCapsules | tc.ClassCapsules
MAKERS: dict[str, tuple[Callable[[str], Layer], tuple[int, ...]]] = {
    "dense": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing), (3, 5)),
    "shared": (lambda routing: tc.DenseCapsules(None, (2, 3), 4, (2, 3), routing), (3, 5)),
    "variable": (lambda routing: tc.DenseCapsules(None, (2, 3), None, (2, 3), routing), (3, 5)),
    "convolution": (lambda routing: tc.ConvCapsules(2, (2, 3), 4, (2, 3), 3, 2, routing), (3, 5, 5, 2)),
    "padded": (
        lambda routing: tc.ConvCapsules(2, (2, 3), 4, (2, 3), (3, 2), 2, routing, padding=1, dilation=(1, 2)),
        (3, 4, 5, 2),
    ),
    "classes": (lambda routing: tc.ClassCapsules(2, (2, 3), 4, (2, 3), routing), (3, 3, 3, 2)),
    "normed": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing, vote_norm="component"), (3, 5)),
}
every_layer = pytest.mark.parametrize("kind", MAKERS)
every_routing = pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
half_of_the_pairs = pytest.mark.parametrize(("kind", "routing"), list_pairs(MAKERS, tc.routing.ROUTINGS))


def make(kind: str, routing: str, dtype: torch.dtype = torch.float64) -> tuple[Layer, tc.Capsules]:
    torch.manual_seed(0)
    builder, shape = MAKERS[kind]
    layer = builder(routing).to(dtype)
    converge_soon(layer)
    return layer, tc.Capsules(numbers(*shape, 6, dtype=dtype), numbers(*shape, seed=1, dtype=dtype))


def parts(capsules: tc.Capsules) -> tuple[Tensor, ...]:
    return tuple(part for part in capsules if part is not None)


# Compiling and exporting take seconds, so that each routing and each layer is tried in some pairs. The networks of
# test_models.py are further pairs, and test_onnx.py exports every routing in every kind of layer.
PAIRS = [("dense", "em"), ("shared", "dynamic"), ("shared", "inverted_attention"), ("convolution", "heinsen")]
PAIRS += [("padded", "fm"), ("variable", "heinsen"), ("classes", "em"), ("normed", "fm")]
PAIRS += zip(cycle(MAKERS), sorted({*tc.routing.ROUTINGS} - {routing for _, routing in PAIRS}))  # pyright: ignore
EVERY_PAIR = list(product(MAKERS, tc.routing.ROUTINGS))
some_pairs = pytest.mark.parametrize(("kind", "routing"), EVERY_PAIR if THOROUGH else PAIRS)


def shorten(layer: Layer) -> None:
    """Two iterations show as much as three and compile sooner."""
    if layer.routing.iterates:
        layer.routing.__dict__["num_iters"] = 2
    if isinstance(layer.routing, tc.routing.EMRouting):
        layer.routing.inverse_temperature = tc.routing.rising_inverse_temperature(2)


def assert_compiles(kind: str, routing: str, backend: str) -> None:
    layer, capsules = make(kind, routing)
    shorten(layer)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert capsules.score is not None
    assert_same(
        lambda pose, score: parts(compiled(tc.Capsules(pose, score))),
        lambda pose, score: parts(layer(tc.Capsules(pose, score))),
        [capsules.pose, capsules.score],
    )


@some_pairs
def test_compiles_without_a_break(kind: str, routing: str) -> None:
    assert_compiles(kind, routing, "aot_eager")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # inside torch's own compiler
def test_compiles_to_machine_code() -> None:
    assert_compiles("dense", "dynamic", "inductor")


@some_pairs
def test_exports_with_any_batch_size(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    layer.eval()
    shorten(layer)
    batch = torch.export.Dim("batch", min=1, max=64)
    sizes: Any = ({0: batch}, {0: batch}, None)
    program = torch.export.export(layer, (capsules,), dynamic_shapes=(tc.Capsules(*sizes),))
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
    assert capsules.score is not None
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], pose: Tensor, score: Tensor) -> Tensor:
        out = torch.func.functional_call(layer, parameters, (tc.Capsules(pose, score),))
        return out.pose.cos().sum()

    single = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, capsules.pose, capsules.score)
    layer(capsules).pose.cos().sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.grad is not None and parameter.grad.abs().max() > 1e-9:
            assert_near(single[name].sum(0), parameter.grad)


@half_of_the_pairs
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # inside torch's own forward mode
def test_every_way_to_differentiate_gives_the_same(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    score = capsules.score
    function = lambda pose: layer.eval()(tc.Capsules(pose, score)).pose.flatten()[:7]  # noqa: E731
    exact = jacobian(function, capsules.pose)
    assert isinstance(exact, Tensor)
    for strategy in ("reverse-mode", "forward-mode"):
        at_once = jacobian(function, capsules.pose, vectorize=True, strategy=strategy)
        assert isinstance(at_once, Tensor)
        assert_near(at_once, exact)
    direction = numbers(*capsules.pose.shape, seed=5)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(capsules.pose, direction))).tangent
    assert tangent is not None
    assert_near(tangent, exact.flatten(1) @ direction.flatten())


class OfTensors(nn.Module):
    """``torch.jit.trace`` takes and returns tensors alone: capsules without a score or a variance hold ``None``."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, pose: Tensor, score: Tensor) -> tuple[Tensor, ...]:
        return parts(self.layer(tc.Capsules(pose, score)))


@half_of_the_pairs
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # sizes that the trace takes for constants
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_can_be_traced(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    function = OfTensors(layer.eval())
    assert capsules.score is not None
    traced: Any = torch.jit.trace(function, (capsules.pose, capsules.score))
    others = torch.cat([capsules.pose, 2.0 * capsules.pose]), torch.cat([capsules.score, -capsules.score])
    for one, other in zip(traced(*others), function(*others), strict=True):
        assert_near(one, other)


@every_layer
@every_routing
def test_works_on_meta_tensors(kind: str, routing: str) -> None:
    layer, capsules = make(kind, routing)
    expected = parts(layer(capsules))
    assert capsules.score is not None
    pose = capsules.pose.to("meta").requires_grad_()
    found = parts(layer.to("meta")(tc.Capsules(pose, capsules.score.to("meta"))))
    assert [part.shape for part in found] == [part.shape for part in expected]
    found[0].sum().backward()
    assert pose.grad is not None


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
