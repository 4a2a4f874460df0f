"""Every model is one graph to compilers and exporters, without run-time checks of shapes in the way."""

import os

import pytest
import torch
from torch.export import Dim

from tests.models.reduced import distinct, inputs, model
from tests.support import THOROUGH
from torchcaps.models import CapsuleNet

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: compilers cannot see through shape checks",
)

# Tracing takes seconds, so each kind of network is tried once.
KINDS = [
    "sabour2017_mnist",
    "hinton2018_smallnorb",
    "heinsen2019_smallnorb",
    "heinsen2019_sst5",
    "heinsen2022_sst5",
    "tsai2020_diverse_multimnist",
    "zhao2020_affnist",
    "cnn_tsai2020_cifar10",
    "resnet18",
]
TRIED = distinct() if THOROUGH else KINDS


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRIED)
def test_compiles_as_one_graph(name: str) -> None:
    torch._dynamo.reset()
    built = model(name).eval()
    # Whether a network is one graph shows without compiling the backward pass; test_transforms.py does that for layers.
    compiled = torch.compile(built, fullgraph=True, backend="aot_eager" if THOROUGH else "eager")
    batch = inputs(built, 3)
    plain, fast = built(batch).logits, compiled(batch).logits
    close(fast, plain)
    weights = [parameter for key, parameter in built.named_parameters() if not key.startswith("decoder")]
    for one, other in zip(
        torch.autograd.grad(fast.sum(), weights, allow_unused=True),
        torch.autograd.grad(plain.sum(), weights, allow_unused=True),
        strict=True,
    ):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


# test_onnx.py exports every part of every model in the same way.
@pytest.mark.parametrize("name", TRIED if THOROUGH else ["sabour2017_mnist", "resnet18"])
def test_exports_with_any_batch_size(name: str) -> None:
    built = model(name).eval()
    shape = ({0: Dim("batch", min=1, max=64)},)
    exported = torch.export.export(built, (inputs(built, 3),), dynamic_shapes=shape, strict=False)
    for batch in (1, 5):
        close(exported.module()(inputs(built, batch)).logits, built(inputs(built, batch)).logits)


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_trains_in_half_precision(name: str, dtype: torch.dtype) -> None:
    built = model(name).to(dtype)
    batch = inputs(built, 3).to(dtype)
    result = built(batch)
    loss = result.logits.float().cos().sum()
    if isinstance(built, CapsuleNet) and built.decoder is not None:
        loss = loss + built.decoder(result.capsules).float().sum()
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in built.parameters() if p.grad is not None)
