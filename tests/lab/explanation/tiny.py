"""Tiny models of every kind, and inputs for them."""

import pytest
import torch
from torch import Tensor

from tests.models import reduced
from tests.support import THOROUGH
from torchcaps.models import CapsuleNet, Model

DISTINCT = [name for name in reduced.distinct() if THOROUGH or name in reduced.varied()]
READS_STATES = [*(name for name in DISTINCT if "sst" in name), "attention_pooling"]  # of a language model
TEXT = [name for name in READS_STATES if isinstance(reduced.model(name), CapsuleNet)]
CAPSULES = [name for name in DISTINCT if isinstance(reduced.model(name), CapsuleNet) and name not in TEXT]
WITHOUT_CAPSULES = [name for name in DISTINCT if name.startswith(("cnn", "resnet"))]
WITH_DECODER = [name for name in CAPSULES if getattr(reduced.model(name), "decoder", None) is not None]


def small(name: str) -> tuple[CapsuleNet, Tensor]:
    """A tiny network of capsules and a batch of three for it."""
    net = reduced.model(name).eval()
    assert isinstance(net, CapsuleNet)
    return net, reduced.inputs(net, 3)


@pytest.fixture(scope="session")
def decoding() -> tuple[CapsuleNet, Tensor, Tensor]:
    """A network with a decoder, images and labels."""
    net, images = small("sabour2017_mnist")
    return net, images, torch.tensor([0, 3, 2])


def any_model(name: str) -> tuple[Model, Tensor]:
    model = reduced.model(name).eval()
    return model, reduced.inputs(model, 3)
