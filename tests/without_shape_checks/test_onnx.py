"""Exported to ONNX, every routing in every kind of layer gives onnxruntime the numbers that PyTorch has."""

import io
import os
import warnings
from contextlib import redirect_stdout

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from tests.support import SINGLE_VALUE, assert_near, numbers
from torchcaps.layers import CapsuleLayer

onnxruntime = pytest.importorskip("onnxruntime")

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


def export(module: nn.Module, inputs: tuple[Tensor, ...]) -> bytes:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False, optimize=False)
    assert program is not None
    return program.model_proto.SerializeToString()


@pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
def test_onnxruntime_gives_the_same_numbers(routing: str) -> None:
    layers = make(routing)
    pose, score = numbers(2, 3, 3, 2, 6, dtype=torch.float32), numbers(2, 3, 3, 2, scale=30.0, dtype=torch.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(export(layers, (pose, score)), options)
    names = [each.name for each in session.get_inputs()]
    batch = {name: tensor.numpy() for name, tensor in zip(names, (pose, score), strict=True)}
    with torch.no_grad():
        expected = layers(pose, score)
    found = session.run(None, batch)
    assert len(found) == len(expected)
    for ours, wanted in zip(found, expected, strict=True):
        assert_near(torch.from_numpy(ours), wanted, SINGLE_VALUE)


def test_log_sigmoid_is_exact_at_every_score() -> None:
    score = torch.tensor([-float("inf"), -200.0, -30.0, -1.0, 0.0, 2.0, 30.0, float("inf")], dtype=torch.float64)
    assert torch.equal(tc.capsules.log_sigmoid(score)[[0, -1]], torch.tensor([-float("inf"), 0.0]).double())
    finite = score[1:-1].requires_grad_()
    wanted = nn.functional.logsigmoid(finite)
    torch.testing.assert_close(tc.capsules.log_sigmoid(finite), wanted)
    assert torch.autograd.gradcheck(tc.capsules.log_sigmoid, finite)
    assert torch.autograd.gradgradcheck(tc.capsules.log_sigmoid, finite)
