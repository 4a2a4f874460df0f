"""Any backbone, any routing, any head; the papers' options do what they say."""

from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.models.reduced import capsule_net, inputs, overrides
from torchcaps.models import CapsuleNet, Class, Conv, Dense, Given, Primary
from torchcaps.routing import resolve

BACKBONES = {
    "convolution": lambda: tc.backbones.ConvStem(2, 6, 3, stride=2, batch_norm=True),
    "residual": lambda: tc.backbones.ResidualTrunk(2, [(4, 1, 1), (6, 1, 2)]),
    "preactivated": lambda: tc.backbones.ResNetV2(2, blocks=1, width=2),
    "own": lambda: nn.Sequential(nn.Conv2d(2, 5, 5, stride=2), nn.Tanh()),
}


@pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_any_backbone_with_any_routing_in_three_kinds_of_layers(backbone: str, routing: str) -> None:
    torch.manual_seed(0)
    net = CapsuleNet(
        image=(2, 23, 21),
        backbone=BACKBONES[backbone](),
        primary=Primary("matrix", caps=2, pose=(2, 3)),
        layers=[Conv(3, (2, 2), 2, 1, routing), Class(4, (2, 2), routing), Dense(3, (2, 4), routing)],
        head=resolve(routing).head,
    )
    found = net(torch.rand(2, 2, 23, 21))
    assert found.logits.shape == (2, 3)
    assert found.capsules.pose.shape == (2, 3, 8)
    found.logits.sum().backward()
    gradient = next(net.backbone.parameters()).grad
    assert gradient is not None
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", tc.models.PRIMARIES)
def test_any_primary_capsules(kind: str) -> None:
    net = CapsuleNet(
        image=(2, 23, 21), backbone=nn.Conv2d(2, 4, 3), primary=Primary(kind, 2, (2, 2)), layers=[Dense(3, (2, 2))]
    )
    assert net(torch.rand(2, 2, 23, 21)).logits.shape == (2, 3)


def test_modules_of_ones_own_in_every_place() -> None:
    class Doubled(nn.Module):
        def forward(self, capsules: tc.Capsules) -> tc.Capsules:
            return tc.Capsules(torch.cat([capsules.pose, capsules.pose], -2))

    class First(nn.Module):
        def forward(self, features: torch.Tensor) -> tc.Capsules:
            return tc.Capsules(features.permute(0, 2, 3, 1).unflatten(-1, (2, 3)))

    class Mean(nn.Module):
        def forward(self, capsules: tc.Capsules) -> torch.Tensor:
            return capsules.pose.mean(-1)

    net = CapsuleNet(
        image=(1, 6, 6),
        backbone=nn.Conv2d(1, 6, 3),
        primary=Given(First(), 3),
        layers=[Given(Doubled(), 3), Dense(5, 4)],
        head=Mean(),
    )
    assert net.layers[1].in_caps == 4 * 4 * 4
    assert net(torch.rand(2, 1, 6, 6)).logits.shape == (2, 5)


def test_a_backbone_keeps_its_mode_and_its_statistics() -> None:
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    CapsuleNet(image=(1, 9, 9), backbone=backbone, primary=Primary("matrix", 2, 4), layers=[Dense(3, 4)])
    assert backbone.training
    assert backbone[1].num_batches_tracked == 0


def test_images_of_any_size_where_no_weight_belongs_to_a_place() -> None:
    for name in ("heinsen2019_smallnorb", "hinton2018_smallnorb"):
        net = capsule_net(name).eval()
        for size in ((45, 38), (50, 61)):
            assert net(torch.rand(1, *net.image[:1], *size)).logits.shape == (1, net.classes)


def test_other_sizes_and_channels_by_overrides() -> None:
    net = tc.models.create("sabour2017_mnist", image_size=(33, 40), channels=3, stem_channels=4, primary_caps=2)
    drawn = net(torch.rand(2, 3, 33, 40), decode="most_active").reconstruction
    assert drawn.shape == (2, 3, 33, 40)


def test_a_module_can_be_the_backbone_of_a_registered_model() -> None:
    net = tc.models.create("tsai2020_cifar10", backbone=nn.Conv2d(3, 7, 5, stride=2), caps=2)
    assert net(torch.rand(1, 3, 32, 32)).logits.shape == (1, 10)


def test_stages_are_what_the_layers_return() -> None:
    net = capsule_net("hinton2018_smallnorb").eval()
    stages = net.stages(inputs(net, 2))
    assert [stage.pose.ndim for stage in stages] == [5, 5, 5, 3]
    again = net.layers[0](stages[0])
    assert torch.equal(again.pose, stages[1].pose)
    score = stages[-1].score
    assert score is not None
    assert torch.equal(net(inputs(net, 2)).logits, score)


@pytest.mark.parametrize(
    "ablation",
    [{"normalize": False}, {"mode": "sequential"}, {"activations": True}, {"num_iters": 1}, {"num_iters": 4}],
)
def test_ablations_of_inverted_attention_change_the_result(ablation: dict) -> None:
    reduced: dict[str, Any] = overrides("tsai2020_cifar10") | {"num_iters": 3}
    torch.manual_seed(0)
    usual = tc.models.create("tsai2020_cifar10", **reduced).eval()
    changed = tc.models.create("tsai2020_cifar10", **(reduced | ablation)).eval()
    changed.load_state_dict(usual.state_dict(), strict=False)
    images = inputs(usual, 2)
    assert not torch.allclose(usual(images).logits, changed(images).logits)
    changed(images).logits.sum().backward()


def test_concurrent_and_sequential_agree_in_the_first_iteration() -> None:
    reduced: dict[str, Any] = overrides("tsai2020_cifar10") | {"num_iters": 1}
    one = tc.models.create("tsai2020_cifar10", **reduced).eval()
    other = tc.models.create("tsai2020_cifar10", **reduced, mode="sequential").eval()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(inputs(one, 2)).logits, other(inputs(one, 2)).logits)


def test_orphans_take_a_share() -> None:
    reduced = overrides("sabour2017_cifar10")
    with_orphan = tc.models.create("sabour2017_cifar10", **reduced).eval()
    without = tc.models.create("sabour2017_cifar10", **reduced, orphan=False).eval()
    without.load_state_dict(with_orphan.state_dict())
    images = inputs(without, 2)
    assert (with_orphan(images).capsules.presence < without(images).capsules.presence).all()


@pytest.mark.parametrize("routing", ["fm", "dynamic", "em"])
def test_zhao_with_three_routings(routing: str) -> None:
    net = capsule_net("zhao2020_cifar10", routing=routing)
    assert net(inputs(net, 3)).logits.isfinite().all()


def test_inner_layers_of_fm_pass_lengths_on_and_the_last_does_not() -> None:
    net = capsule_net("zhao2020_cifar10").eval()
    *_, inner, last = net.stages(inputs(net, 2))
    assert not torch.allclose(inner.pose.norm(dim=-1), torch.ones(2, inner.pose.shape[1]))
    torch.testing.assert_close(last.pose.norm(dim=-1), torch.ones(2, last.pose.shape[1]))
