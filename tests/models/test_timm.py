"""Networks of timm below capsules. What timm does is told by a small stand-in; timm itself is used where it is."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.models import CapsuleNet, Class, Conv, Primary, TimmBackbone
from torchcaps.models.timm_backbones import import_timm

LAYERS = [Conv(2, (2, 2), 2, routing="em"), Class(5, (2, 2), routing="em")]
PRIMARY = Primary("matrix", caps=2, pose=(2, 2))


class Stages(nn.Module):
    """As a network of timm with ``features_only``: the feature maps of the stages asked for, channels last or first."""

    def __init__(self, in_chans: int, out_indices: tuple[int, ...], output_fmt: str) -> None:
        super().__init__()
        widths = (4, 6, 8)
        self.stages = nn.ModuleList(
            nn.Conv2d(before, width, 3, 2, 1) for before, width in zip((in_chans, *widths), widths, strict=False)
        )
        self.out_indices, self.output_fmt = out_indices, output_fmt
        self.feature_info = SimpleNamespace(channels=lambda: [widths[index] for index in out_indices])

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for stage in self.stages:
            images = stage(images)
            found.append(images if self.output_fmt == "NCHW" else images.permute(0, 2, 3, 1))
        return [found[index] for index in self.out_indices]


def create_model(
    name: str, pretrained: bool, features_only: bool, out_indices: tuple[int, ...], in_chans: int
) -> Stages:
    assert features_only
    if pretrained:
        raise FileNotFoundError("no network")
    if not -3 <= out_indices[0] < 3:
        raise IndexError(f"no stage {out_indices[0]}")
    return Stages(in_chans, out_indices, "NHWC" if name == "swin" else "NCHW")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["resnet18", "swin"]
    module: Any = ModuleType("timm")
    module.create_model, module.list_models, module.is_model = create_model, lambda: names, lambda name: name in names
    monkeypatch.setitem(sys.modules, "timm", module)


def check_network(name: str, image: tuple[int, int, int], other: tuple[int, int]) -> None:
    net = CapsuleNet(image=image, backbone=f"timm:{name}", primary=PRIMARY, layers=LAYERS)
    for size in (image[1:], other):
        found = net(torch.rand(2, image[0], *size))
        assert found.logits.shape == (2, 5)
        found.logits.sum().backward()
    first = next(net.backbone.parameters())
    assert first.grad is not None
    assert first.shape[1] == image[0], "as many channels as the images"


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", ["resnet18", "swin"])
def test_a_name_gives_a_backbone_for_images_of_any_size_and_channels(name: str):
    check_network(name, (1, 32, 24), (40, 48))
    backbone = TimmBackbone(name, in_channels=2, stage=-2)
    assert backbone(torch.rand(3, 2, 16, 24)).shape == (3, backbone.out_channels, 4, 6) == (3, 6, 4, 6)
    assert repr(backbone).startswith(f"TimmBackbone(\n  '{name}', stage=-2, out_channels=6")


@pytest.mark.usefixtures("stand_in")
def test_what_is_wrong_is_said_in_a_line():
    with pytest.raises(ValueError, match="timm has no model 'resnet19'; did you mean 'resnet18'"):
        CapsuleNet(image=(3, 32, 32), backbone="timm:resnet19", primary=PRIMARY, layers=LAYERS)
    with pytest.raises(ValueError, match="backbone is 'resnet18'; expected a module, or 'timm:NAME'"):
        CapsuleNet(image=(3, 32, 32), backbone="resnet18", primary=PRIMARY, layers=LAYERS)
    with pytest.raises(ValueError, match="timm's resnet18 gives no feature map of stage 7"):
        TimmBackbone("resnet18", stage=7)
    with pytest.raises(ConnectionError, match=r"no weights of timm's resnet18 to be had: no network; pretrained=False"):
        TimmBackbone("resnet18", pretrained=True)


def test_a_missing_timm_and_a_torchvision_of_another_build_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"a backbone of timm needs timm, .* pip install 'torchcaps\[timm\]'"):
        import_timm()

    def fail(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(
        ImportError, match=r"timm needs torchvision, which does not work with torch .*nms does not exist"
    ):
        import_timm()


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_networks_of_timm_itself(name: str):
    check_network(name, (1, 64, 64), (96, 80))
    assert tc.models.count_parameters(TimmBackbone(name)) > 1_000_000
