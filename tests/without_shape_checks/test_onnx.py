"""Exported to ONNX, every layer with every routing and every model gives onnxruntime the numbers that PyTorch has, at
every batch size."""

import os
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from tests.models import reduced
from tests.support import SINGLE_VALUE, assert_near, numbers
from torchcaps.export.outputs import ModelOutputs
from torchcaps.export.runtime import open_session, run_session
from torchcaps.layers import CapsuleLayer

pytest.importorskip("onnxruntime")
BATCHES = (1, 3, 64)

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: exporters cannot see through shape checks",
)


class EveryLayer(nn.Module):
    """All kinds of layers with one routing, side by side: one export instead of many."""

    def __init__(self, routing: str) -> None:
        super().__init__()
        self.dense = tc.DenseCapsules(18, (2, 3), 4, (2, 3), routing)
        self.shared = tc.DenseCapsules(None, (2, 3), 4, (2, 3), routing)
        self.built = tc.DenseCapsules(None, (1, 6), 4, (1, 1), routing)
        self.convolution = tc.ConvCapsules(2, (2, 3), 4, (2, 3), 2, 1, routing)
        self.padded = tc.ConvCapsules(2, (2, 3), 4, (2, 3), (3, 2), 2, routing, padding=1)
        self.classes = tc.ClassCapsules(2, (2, 3), 4, (2, 3), routing)

    def layers(self) -> tuple[CapsuleLayer, ...]:
        return self.dense, self.shared, self.built, self.convolution, self.padded, self.classes

    def forward(self, pose: Tensor, score: Tensor) -> tuple[Tensor, ...]:
        grid = tc.Capsules(pose, score)
        flat = tc.Capsules(pose.flatten(1, 3), score.flatten(1))
        results = [layer(flat) for layer in (self.dense, self.shared, self.built)]
        results += [layer(grid) for layer in (self.convolution, self.padded, self.classes)]
        return tuple(part for capsules in results for part in capsules if part is not None)


def make(routing: str) -> EveryLayer:
    torch.manual_seed(0)
    layers = EveryLayer(routing).eval()
    for layer in layers.layers():  # two iterations show as much as three and export sooner
        if routing != "fm":
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
        for ours, wanted in zip(run_session(session, given, "layers"), expected, strict=True):
            assert_near(torch.from_numpy(ours), wanted, SINGLE_VALUE)


def group_by_structure() -> dict[str, list[str]]:
    """Names of the registry by the structure of their networks: those of a group differ in sizes alone."""
    groups: dict[str, list[str]] = {}
    for name in reduced.NAMES:
        model = reduced.model(name)
        structure = re.sub(r"\d+", "#", repr(model)) + str([vars(model).get(key) for key in ("mode", "type_first")])
        groups.setdefault(structure, []).append(name)
    return {names[0]: names for names in groups.values()}


# What is asked for beside logits, poses and presences: each kind of routing and of decoder once, since it is slow.
COUPLINGS = ("sabour2017_cifar10", "hinton2018_smallnorb", "heinsen2019_sst5", "tsai2020_cifar10", "zhao2020_affnist")
RECONSTRUCTION = ("sabour2017_mnist", "zhao2020_affnist")
GROUPS = group_by_structure()


@pytest.mark.parametrize("name", GROUPS)
def test_every_model_of_the_registry(name: str, tmp_path: Path) -> None:
    """One of each structure; ``GROUPS`` has the names that differ from it in sizes alone."""
    model = reduced.model(name).eval()
    asked = {"couplings": name in COUPLINGS, "reconstruction": name in RECONSTRUCTION}
    tc.export.to_onnx(model, tmp_path / "model.onnx", **asked, check=False)
    exported = tc.export.load(tmp_path / "model.onnx")
    literal = ModelOutputs(model, **asked)
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
        for output, wanted in expected.items():
            assert_near(found[output], wanted, SINGLE_VALUE)


def test_the_groups_have_every_model_and_every_routing() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(tc.models.list())
    used = {
        type(layer.routing)
        for name in GROUPS
        for layer in reduced.model(name).modules()
        if isinstance(layer, CapsuleLayer)
    }
    assert used == set(tc.routing.ROUTINGS.values())


def test_only_ordinary_operators(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    tc.export.to_onnx(reduced.model("comparison"), tmp_path / "model.onnx", couplings=True, check=False)
    file = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(file, full_check=True)
    assert [(each.domain, each.version) for each in file.opset_import] == [("", 18)]
    assert not file.functions
    assert {node.domain for node in file.graph.node} == {""}


def test_log_sigmoid_is_exact_at_every_score() -> None:
    score = torch.tensor([-float("inf"), -200.0, -30.0, -1.0, 0.0, 2.0, 30.0, float("inf")], dtype=torch.float64)
    assert torch.equal(tc.capsules.log_sigmoid(score)[[0, -1]], torch.tensor([-float("inf"), 0.0]).double())
    finite = score[1:-1].requires_grad_()
    wanted = nn.functional.logsigmoid(finite)
    torch.testing.assert_close(tc.capsules.log_sigmoid(finite), wanted)
    assert torch.autograd.gradcheck(tc.capsules.log_sigmoid, finite)
    assert torch.autograd.gradgradcheck(tc.capsules.log_sigmoid, finite)
