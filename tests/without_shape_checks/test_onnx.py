"""Exported to ONNX, every layer with every routing and every model gives onnxruntime the numbers that PyTorch has, at
every batch size."""

import copy
import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from tests.models import reduced
from tests.support import SINGLE_VALUE, THOROUGH, assert_near, converge_soon, numbers, relative_error
from torchcaps.decoders import Decoder
from torchcaps.export.outputs import ModelOutputs
from torchcaps.export.runtime import open_session, run_session
from torchcaps.layers import CapsuleLayer
from torchcaps.models import Model

pytest.importorskip("onnxruntime")
BATCHES = (1, 3, 64)

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: exporters cannot see through shape checks",
)


def assert_as_exact(found: Tensor, ours: Tensor, compute_exact: Callable[[], Tensor]) -> None:
    """onnxruntime's numbers are PyTorch's; or, where single precision holds fewer digits than that (a vote that is a
    small difference of large numbers), they are as near to those of double precision as PyTorch's."""
    if relative_error(found, ours) > SINGLE_VALUE:
        exact = compute_exact()
        assert_near(found, exact.to(found.dtype), max(SINGLE_VALUE, relative_error(ours.double(), exact)))


class EveryLayer(nn.Module):
    """Kinds of layers with one routing, side by side: one export instead of many. Those that the models below have as
    well are tried with every routing on request."""

    def __init__(self, routing: str) -> None:
        super().__init__()
        self.flat: list[CapsuleLayer] = []
        self.grid: list[CapsuleLayer] = []
        # One routing has shared weights and the next a convolution: both meet routings of every kind.
        turn = list(tc.routing.ROUTINGS).index(routing) % 2
        if THOROUGH or turn == 0:
            self.flat.append(tc.DenseCapsules(None, (2, 3), 4, (2, 3), routing))
        if THOROUGH or turn == 1:
            self.grid.append(tc.ConvCapsules(2, (2, 3), 4, (2, 3), (3, 2), 2, routing, padding=1))
        if THOROUGH:
            self.flat.append(tc.DenseCapsules(18, (2, 3), 4, (2, 3), routing))
            self.flat.append(tc.DenseCapsules(None, (1, 6), 4, (1, 1), routing))
            self.grid.append(tc.ConvCapsules(2, (2, 3), 4, (2, 3), 2, 1, routing))
            self.grid.append(tc.ClassCapsules(2, (2, 3), 4, (2, 3), routing))
        self.held = nn.ModuleList(self.layers())

    def layers(self) -> list[CapsuleLayer]:
        return [*self.flat, *self.grid]

    def forward(self, pose: Tensor, score: Tensor) -> tuple[Tensor, ...]:
        grid = tc.Capsules(pose, score)
        flat = tc.Capsules(pose.flatten(1, 3), score.flatten(1))
        results = [*(layer(flat) for layer in self.flat), *(layer(grid) for layer in self.grid)]
        return tuple(part for capsules in results for part in capsules if part is not None)


def make(routing: str) -> EveryLayer:
    torch.manual_seed(0)
    layers = EveryLayer(routing).eval()
    converge_soon(layers)
    for layer in layers.layers():  # two iterations show as much as three and export sooner
        if layer.routing.iterates:
            layer.routing.__dict__["num_iters"] = 2
        if isinstance(layer.routing, tc.routing.EMRouting):
            layer.routing.inverse_temperature = tc.routing.rising_inverse_temperature(2)
    for name, parameter in layers.named_parameters():
        if "beta" in name:  # parents whose scores are far below zero, and far above
            with torch.no_grad():
                parameter.copy_(torch.linspace(-40.0, 40.0, parameter.shape[-1]).expand_as(parameter))
    return layers


@pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
def test_every_layer_of_every_routing(routing: str, tmp_path: Path) -> None:
    layers = make(routing)
    pose, score = numbers(64, 3, 3, 2, 6, dtype=torch.float32), numbers(64, 3, 3, 2, scale=30.0, dtype=torch.float32)
    tc.export.to_onnx(layers, tmp_path / "layers.onnx", (pose[:2], score[:2]), check=False)
    session = open_session((tmp_path / "layers.onnx").read_bytes(), "layers", threads=1)
    for batch in BATCHES:
        with torch.no_grad():
            expected = layers(pose[:batch], score[:batch])
        given = {"input_1": pose[:batch].numpy(), "input_2": score[:batch].numpy()}

        @functools.cache
        def compute_exact(batch: int = batch) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return copy.deepcopy(layers).double()(pose[:batch].double(), score[:batch].double())

        for index, (found, ours) in enumerate(zip(run_session(session, given, "layers"), expected, strict=True)):
            assert_as_exact(torch.from_numpy(found), ours, lambda index=index, exact=compute_exact: exact()[index])


def list_routings(name: str) -> set[type]:
    model = reduced.model(name)
    return {type(layer.routing) for layer in model.modules() if isinstance(layer, CapsuleLayer)}


def list_decoders(name: str) -> set[type]:
    return {type(part) for part in reduced.model(name).modules() if isinstance(part, Decoder)}


def choose_one_of_each(kinds: dict[str, set[type]]) -> tuple[str, ...]:
    """The first model that has each kind of thing."""
    wanted = set[type]().union(*kinds.values())
    return tuple({next(name for name, own in kinds.items() if kind in own) for kind in wanted})


# What is asked for beside logits, poses and presences: each routing and each decoder once, since it is slow.
CHOSEN = reduced.varied()  # parts are exported the same beside other parts
ROUTED = {name: list_routings(name) for name in CHOSEN}
COUPLINGS = choose_one_of_each(ROUTED)
RECONSTRUCTION = choose_one_of_each({name: list_decoders(name) for name in CHOSEN})
WITHOUT_MODEL = [name for name, kind in tc.routing.ROUTINGS.items() if not any(kind in own for own in ROUTED.values())]


@pytest.mark.parametrize("name", reduced.distinct() if THOROUGH else CHOSEN)
def test_every_model_of_the_registry(name: str, tmp_path: Path) -> None:
    compare(reduced.model(name).eval(), tmp_path / "model.onnx", name in COUPLINGS, name in RECONSTRUCTION)


@pytest.mark.parametrize("routing", WITHOUT_MODEL)
def test_couplings_of_routings_that_no_model_has(routing: str, tmp_path: Path) -> None:
    model = reduced.capsule_net("comparison", routing=routing).eval()
    converge_soon(model)
    compare(model, tmp_path / "model.onnx", couplings=True, reconstruction=False)


def compare(model: Model, path: Path, couplings: bool, reconstruction: bool) -> None:
    """All outputs of the exported model are those of the model."""
    tc.export.to_onnx(model, path, couplings=couplings, reconstruction=reconstruction, check=False)
    assert_ordinary(path)
    exported = tc.export.load(path)
    literal = ModelOutputs(model, couplings=couplings, reconstruction=reconstruction)
    for batch in BATCHES:
        given: tuple[Tensor, ...] = (reduced.inputs(model, batch),)
        if len(exported.session.get_inputs()) == 2:  # another number of tokens than in the export
            inputs = torch.cat((given[0], given[0]), 1)
            there = torch.arange(inputs.shape[1]) < 1 + torch.arange(batch)[:, None] % inputs.shape[1]
            given = (inputs, there)
        with torch.no_grad():
            expected = literal.compute(*given)
        found = exported.run(*given)
        assert list(found) == list(expected)

        @functools.cache
        def compute_exact(given: tuple[Tensor, ...] = given) -> dict[str, Tensor]:
            double = ModelOutputs(copy.deepcopy(model).double(), couplings=couplings, reconstruction=reconstruction)
            with torch.no_grad():
                return double.compute(*(each.double() if each.is_floating_point() else each for each in given))

        for output, ours in expected.items():
            assert_as_exact(found[output], ours, lambda output=output, exact=compute_exact: exact()[output])


def assert_ordinary(path: Path) -> None:
    """The file has the operators of ONNX and nothing else."""
    onnx = pytest.importorskip("onnx")
    file = onnx.load(path)
    onnx.checker.check_model(file, full_check=True)
    assert [(each.domain, each.version) for each in file.opset_import] == [("", 18)]
    assert not file.functions
    assert {node.domain for node in file.graph.node} == {""}


def test_couplings_and_reconstructions_of_every_kind_are_exported() -> None:
    assert {*COUPLINGS, *RECONSTRUCTION} <= set(CHOSEN)
    exported = set[type]().union(*(ROUTED[name] for name in COUPLINGS))
    assert exported | {tc.routing.resolve(name) for name in WITHOUT_MODEL} == set(tc.routing.ROUTINGS.values())
    decoders = set[type]().union(*map(list_decoders, RECONSTRUCTION))
    assert decoders == set(Decoder.__subclasses__())


def test_log_sigmoid_is_exact_at_every_score() -> None:
    score = torch.tensor([-float("inf"), -200.0, -30.0, -1.0, 0.0, 2.0, 30.0, float("inf")], dtype=torch.float64)
    assert torch.equal(tc.capsules.log_sigmoid(score)[[0, -1]], torch.tensor([-float("inf"), 0.0]).double())
    finite = score[1:-1].requires_grad_()
    wanted = nn.functional.logsigmoid(finite)
    torch.testing.assert_close(tc.capsules.log_sigmoid(finite), wanted)
    assert torch.autograd.gradcheck(tc.capsules.log_sigmoid, finite)
    assert torch.autograd.gradgradcheck(tc.capsules.log_sigmoid, finite)
