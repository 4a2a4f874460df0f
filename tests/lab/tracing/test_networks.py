"""Modules that nobody registered: what their capsule layers do is seen as in the networks of the registry."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from tests.lab.explanation.tiny import small
from tests.models import reduced
from torchcaps.decoders import FullyConnectedDecoder
from torchcaps.lab.explanation.couplings import measure_couplings
from torchcaps.lab.tracing.networks import HookedNet, require_capsules, require_decoder, takes_images
from torchcaps.lab.tracing.traces import iterating, trace
from torchcaps.layers import CapsuleLayer


class Net(nn.Module):
    """As users write them: flattened by hand, and returning a plain tensor."""

    def __init__(self, *, type_first: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 5)
        self.primary = tc.SquashedPrimaryCapsules(4, 2, 4, kernel_size=3)
        self.parts = tc.DenseCapsules(3 * 3 * 2, 4, 5, 6, routing="em")
        self.classes = tc.DenseCapsules(5, 6, 3, 4, routing="dynamic")
        self.type_first = type_first

    def forward(self, images: Tensor) -> Tensor:
        grid = self.primary(self.stem(images).relu())
        found = self.classes(self.parts(tc.flatten_grid(grid, type_first=self.type_first)))
        return found.presence


IMAGES = torch.rand(4, 1, 12, 12, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("type_first", [False, True])
def test_layers_of_any_module_are_traced(type_first: bool) -> None:
    net = Net(type_first=type_first)
    first, second = trace(net, IMAGES)
    assert (first.routing, second.routing) == ("EM", "dynamic")
    assert first.children.pose.shape == (4, 3, 3, 2, 4)
    assert first.type_first == type_first
    assert first.couplings().shape == (4, 1, 18, 5)
    record = measure_couplings(net, IMAGES)
    torch.testing.assert_close(torch.from_numpy(record.share).sum(-1), torch.ones(4, 3, 3, 3))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
    with iterating(net, 5):
        assert [len(layer.iterations) for layer in trace(net, IMAGES)] == [5, 5]
    assert [len(layer.iterations) for layer in trace(net, IMAGES)] == [3, 3]


@pytest.mark.parametrize("name", ["sabour2017_mnist", "hinton2018_smallnorb", "zhao2020_affnist"])
def test_hooks_see_what_the_network_shows(name: str) -> None:
    net, images = small(name)
    expected, found = trace(net, images), trace(HookedNet(net), images)
    assert len(found) == len(expected)
    for one, other in zip(expected, found, strict=True):
        assert one.type_first == other.type_first
        assert one.children.pose.shape == other.children.pose.shape
        torch.testing.assert_close(one.couplings(), other.couplings())
    torch.testing.assert_close(HookedNet(net)(images).logits, net(images).logits)


def test_any_module_is_explained_and_displayed(tmp_path) -> None:
    net = Net()
    found = tc.lab.explain(net, IMAGES, torch.tensor([0, 1, 2, 0]), ("a", "<b>", "c"), limit=2)
    names = {shown.name for shown in found.figures}
    assert {"couplings-1", "coupling-graph", "routing-changes", "vote-distances", "robustness"} <= names
    missing = {topic.name: topic.missing for topic in found.topics if topic.missing}
    assert "has no decoder" in missing["reconstruction"]
    shown = found._repr_html_()
    assert "Inside Net" in shown
    assert shown.count("data:image/svg+xml;base64,") == len(found.figures)
    assert "<b>" not in shown
    assert found.write(tmp_path).is_file()
    assert all((tmp_path / f"{name}.svg").is_file() for name in names)
    assert net.training


def test_layers_that_run_beside_each_other_are_traced_one_by_one() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (tc.DenseCapsules(6, 4, parents, 4) for parents in (2, 3))

        def forward(self, pose: Tensor) -> dict[str, tc.Capsules]:
            return {"one": self.one(tc.Capsules(pose)), "two": self.two(capsules=tc.Capsules(pose))}

    pose = torch.randn(2, 6, 4)
    assert [layer.couplings().shape[-1] for layer in trace(Two(), pose)] == [2, 3]
    found = tc.lab.explain(Two(), pose, topics=["couplings", "iterations"])
    assert "neither images nor hidden states" in found.topics[0].missing
    assert found.figures[0].name == "routing-changes"


def test_what_has_no_capsules_says_so() -> None:
    with pytest.raises(ValueError, match=r"Linear has no capsules.*DenseCapsules"):
        require_capsules(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="3 labels for 4 inputs"):
        tc.lab.explain(Net(), IMAGES, torch.zeros(3, dtype=torch.long))

    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = tc.DenseCapsules(6, 4, 2, 4)

        def forward(self, pose: Tensor) -> Tensor:
            return pose

    with pytest.raises(ValueError, match="Idle did not call its capsule layers"):
        trace(Idle(), torch.randn(2, 6, 4))


def test_a_decoder_anywhere_in_a_module_is_found() -> None:
    net = Net()
    net.picture = FullyConnectedDecoder(3, 4, (1, 12, 12), hidden=(8, 8))
    assert require_decoder(net)[1] is net.picture
    found = tc.lab.explain(net, IMAGES, topics=["reconstruction", "perturbation"])
    assert [shown.name for shown in found.figures] == ["reconstructions", "perturbation", "dimension-effects"]
    assert "labels as predicted" in found.data


def test_the_laboratory_is_not_imported_before_it_is_asked_for() -> None:
    asked = "import sys, torchcaps; assert 'torchcaps.lab' not in sys.modules; assert 'matplotlib' not in sys.modules; "
    asked += "torchcaps.lab.explain; assert 'matplotlib' in sys.modules"
    subprocess.run([sys.executable, "-c", asked], check=True)
    with pytest.raises(AttributeError, match="has no 'explane'; it has diagnose, explain"):
        tc.lab.explane  # noqa: B018
    assert isinstance(Net().parts, CapsuleLayer)


@pytest.mark.parametrize("name", ["attention_pooling", "heinsen2022_sst5", "heinsen2019_sst5", "resnet18"])
def test_hidden_states_are_no_images(name: str) -> None:
    model = reduced.model(name)
    assert takes_images(model, reduced.inputs(model, 1)) == (name == "resnet18")
