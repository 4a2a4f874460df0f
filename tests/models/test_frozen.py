"""The head of Heinsen 2022 on frozen networks: what they may return, and that they stay frozen."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.support import assert_near
from torchcaps.models import FrozenRouting
from torchcaps.models.heinsen2022 import stack_states

IMAGE = (3, 12, 8)


class Layers(nn.Module):
    """Two layers of feature maps of one size, with batch norm and dropout, which would show that they are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 5, 4, stride=4), nn.BatchNorm2d(5), nn.Dropout(0.5))
        self.second = nn.Conv2d(5, 5, 1)

    def forward(self, images: Tensor) -> list[Tensor]:
        below = self.first(images)
        return [below, self.second(below)]


def test_only_the_head_learns() -> None:
    torch.manual_seed(0)
    net = FrozenRouting(Layers(), 4, image=IMAGE, caps=3).train()
    before = {name: tensor.clone() for name, tensor in net.backbone.state_dict().items()}
    images = torch.randn(2, *IMAGE)
    found = net(images)
    assert found.logits.shape == (2, 4)
    assert_near(net(images).logits, found.logits, 1e-6)
    found.logits.square().sum().backward()
    torch.optim.SGD(net.parameters(), 0.1).step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.backbone.state_dict().items())
    assert all(parameter.grad is not None for parameter in net.routing.parameters())
    assert net.credit(images).shape == (2, 3 * 2, 2, 4)
    assert_near(torch.cat([net(image[None]).logits for image in images]), net(images).logits, 1e-5)


def test_whatever_a_network_returns() -> None:
    maps, tokens = torch.randn(2, 5, 3, 2), torch.randn(2, 6, 5)
    assert_near(stack_states(maps)[:, :, 0], maps.flatten(2).mT)
    assert_near(stack_states([tokens, 2 * tokens])[:, :, 1], 2 * tokens)
    assert stack_states(SimpleNamespace(hidden_states=(tokens,) * 4)).shape == (2, 6, 4, 5)
    with pytest.raises(ValueError, match=r"of one shape; this one returned \(2, 5, 3, 2\), \(2, 6, 5\)"):
        stack_states([maps, tokens])
    with pytest.raises(ValueError, match="this one returned dict"):
        stack_states({})
    with pytest.raises(ValueError, match=r"this one returned \(1, 5\)"):
        FrozenRouting(nn.Sequential(nn.Flatten(), nn.Linear(288, 5)), 4, image=IMAGE)
