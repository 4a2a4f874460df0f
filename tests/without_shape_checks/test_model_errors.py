"""Whatever does not fit gets a message that says what came and what would be right."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps import losses
from torchcaps.data import augmentation
from torchcaps.models import CapsuleNet, Class, Conv, Dense, Primary

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"), reason="run with TORCHCAPS_PLAIN=1: shape checks would speak first"
)

SMALL: dict[str, Any] = {"stem_channels": 4, "primary_caps": 2, "decoder": False}


def net(**parts) -> CapsuleNet:
    usual = {
        "image": (1, 12, 12),
        "backbone": nn.Conv2d(1, 3, 3, 2),
        "primary": Primary("matrix", 2, (2, 2)),
        "layers": [Dense(3, (2, 2))],
    }
    return CapsuleNet(**(usual | parts))


CASES: list[tuple[str, Callable[[], object]]] = [
    (r"no model 'sabour2017_minst'; did you mean 'sabour2017_mnist'", lambda: tc.models.create("sabour2017_minst")),
    ("no model 'x'; .*list.* names all", lambda: tc.models.create("x")),
    (
        "sabour2017_mnist has no 'num_iter'; did you mean 'num_iters'",
        lambda: tc.models.create("sabour2017_mnist", num_iter=2),
    ),
    (
        "hinton2018_smallnorb has no 'decoder'; it has image_size, channels",
        lambda: tc.models.create("hinton2018_smallnorb", decoder=True),
    ),
    (
        r"sabour2017_mnist: images of \(1, 7, 7\) do not fit the backbone",
        lambda: tc.models.create("sabour2017_mnist", image_size=7),
    ),
    (
        r"sabour2017_mnist: the primary capsules do not fit features of \(6, 6\); give larger images",
        lambda: tc.models.create("sabour2017_mnist", image_size=14),
    ),
    (
        r"layer 1 on images of \(2, 15, 15\): a field of 3×3 does not fit the grid of 2×2",
        lambda: tc.models.create("hinton2018_smallnorb", image_size=15),
    ),
    (
        "an image of 42×42 needs sides in fours",
        lambda: tc.models.create("zhao2020_affnist", image_size=42),
    ),
    ("at least 1", lambda: tc.models.create("resnet18", channels=0)),
    (
        r"takes batches of \(1, 28, 28\); got a batch of shape \(2, 3, 28, 28\)",
        lambda: tc.models.create("sabour2017_mnist", **SMALL)(torch.zeros(2, 3, 28, 28)),
    ),
    (
        r"takes batches of \(1, 28, 28\); got a batch of shape \(2, 1, 32, 32\)",
        lambda: tc.models.create("sabour2017_mnist", **SMALL)(torch.zeros(2, 1, 32, 32)),
    ),
    (
        r"takes batches of \(2, any, any\); got a batch of shape \(1, 1, 40, 40\)",
        lambda: tc.models.create("heinsen2019_smallnorb", stem_channels=4)(torch.zeros(1, 1, 40, 40)),
    ),
    (
        r"takes batches of \(any, 37, 8\); got a batch of shape \(1, 5, 36, 8\)",
        lambda: tc.models.create("heinsen2019_sst5", embedding=8)(torch.zeros(1, 5, 36, 8)),
    ),
    (
        r"a mask of shape \(1, 4\) for states of shape \(1, 5, 37, 8\); expected \(1, 5\)",
        lambda: tc.models.create("heinsen2019_sst5", embedding=8)(
            torch.zeros(1, 5, 37, 8), torch.ones(1, 4, dtype=torch.bool)
        ),
    ),
    (
        r"takes batches of \(3, 32, 32\); got",
        lambda: tc.models.create("resnet18", width=2)(torch.zeros(1, 3, 28, 28)),
    ),
    (
        "no backbone 'vgg'; there are 'simple' and 'resnet'",
        lambda: tc.models.create("tsai2020_cifar10", backbone="vgg"),
    ),
    ("the ablations belong to inverted", lambda: tc.models.create("tsai2020_cifar10", routing="em", normalize=False)),
    (
        "orphan=True is for routings with an orphan",
        lambda: tc.models.create("sabour2017_cifar10", routing="em"),
    ),
    ("no routing 'rba'; there are 'dynamic'", lambda: tc.models.create("zhao2020_cifar10", routing="rba")),
    ("no pooling 'max'", lambda: tc.models.create("cnn_tsai2020_diverse_multimnist", width=2, pooling="max")),
    ("caps are B, C and D", lambda: tc.models.create("hinton2018_smallnorb", caps=(8, 16))),
    ("each convolution of the stem, at least one", lambda: tc.models.create("hinton2018_smallnorb", stem_strides=())),
    ("at least one layer", lambda: net(layers=[])),
    ("no primary capsules 'conv'", lambda: net(primary=Primary("conv", 2, 4))),
    ("no head 'softmax'; there are 'score', 'linear'", lambda: net(head="softmax")),
    ("end with Dense or Class", lambda: net(layers=[Conv(3, (2, 2), 3)])),
    ("layer 1 .* needs a grid of capsules below", lambda: net(layers=[Dense(3, (2, 2)), Class(3, (2, 2))])),
    ("votes keep the rows of a pose", lambda: net(layers=[Dense(3, (3, 3))])),
    ("one feature map .* returned \\(1, 144\\)", lambda: net(backbone=nn.Flatten())),
    ("step by step; one of them has DynamicRouting", lambda: net(num_iters=2)),
    (
        "have no score; give the network the linear head",
        lambda: net(layers=[Dense(3, (2, 2), "inverted_attention")])(torch.zeros(1, 1, 12, 12)),
    ),
    ("has no decoder", lambda: net()(torch.zeros(1, 1, 12, 12), decode="most_active")),
    (
        "the 4 most active of 3",
        lambda: tc.decoders.most_active(tc.Capsules(torch.zeros(1, 3, 4), torch.zeros(1, 3)), 4),
    ),
    ("have no most active", lambda: tc.decoders.most_active(tc.Capsules(torch.zeros(1, 3, 4)))),
    (
        r"takes 3 capsules of 4 numbers; got poses of shape \(1, 3, 5\)",
        lambda: tc.decoders.FullyConnectedDecoder(3, 4, (1, 4, 4))(tc.Capsules(torch.zeros(1, 3, 5))),
    ),
    ("an image of 12×16 needs sides in eights", lambda: tc.decoders.UpsamplingDecoder(3, 4, (1, 12, 16))),
    ("are 12, which is no multiple of the 8 channels", lambda: tc.DepthwisePrimaryCapsules(8, 3, 4)),
    ("'batch', 'instance' or 'none'; got norm='layer'", lambda: tc.backbones.ConvStack(1, [(2, 3, 1)], norm="layer")),  # pyright: ignore
    ("leave nothing of images of 10 pixels", lambda: tc.models.create("efficient2021_mnist", image_size=10)),
    ("poses of primary_pose=7 numbers", lambda: tc.models.create("efficient2021_mnist", primary_pose=7)),
    (
        "'uniform' or 'normal'; got 'cauchy'",
        lambda: augmentation.draw_amounts((2,), "cauchy", torch.Generator()),  # pyright: ignore
    ),
    ("a multiple of four", lambda: tc.decoders.DeconvolutionDecoder(3, 4, (1, 4, 4), width=6)),
    (
        r"target of shape \(2, 2\) .* expected class numbers \(2,\) or rows \(2, 3\)",
        lambda: losses.MarginLoss()(torch.zeros(2, 3), torch.zeros(2, 2)),
    ),
    ("3 class numbers for 2 rows", lambda: losses.CrossEntropyLoss()(torch.zeros(2, 3), torch.tensor([0, 1, 2]))),
    ("no decision 'best'", lambda: losses.decide(torch.zeros(1, 3), "best")),  # pyright: ignore
    ("give one of the two", lambda: losses.SpreadLoss(0.2, steps=5)),
    ("margin loss on 'length'", lambda: losses.MarginLoss(on="length")),  # pyright: ignore
    (
        "reconstruction of shape",
        lambda: losses.reconstruction_loss(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 3, 3)),
    ),
]


@pytest.mark.parametrize(("message", "call"), CASES)
def test_message(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tc.models.save(tc.models.create("sabour2017_mnist", **SMALL), path)
    wider: dict[str, Any] = SMALL | {"primary_caps": 3}
    other = tc.models.create("sabour2017_mnist", **wider)
    with pytest.raises(ValueError, match=r"tensors of another shape: .*layers\.0\.weight \(72, .* in place of \(108, "):
        tc.models.load_weights(other, path)
    with pytest.raises(ValueError, match=r"missing: .*, …; \d+ tensors that the model does not have: primary"):
        tc.models.load_weights(tc.models.create("hinton2018_smallnorb_small"), path)
    path.write_bytes(b"no tensors here at all")
    with pytest.raises(ValueError, match="is no safetensors file"):
        tc.models.load(path)


def test_hand_made_models_keep_their_weights_only(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    made = net()
    tc.models.save(made, path)
    with pytest.raises(ValueError, match="put together by hand"):
        tc.models.load(path)
    again = net()
    tc.models.load_weights(again, path)
    images = torch.rand(2, 1, 12, 12)
    assert torch.equal(again(images).logits, made(images).logits)
