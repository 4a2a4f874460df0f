"""Primary capsules, as each paper makes them."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support import assert_near, numbers
from torchcaps.capsules import squash
from torchcaps.squashing import exponential_squash

FEATURES = torch.randn(2, 6, 11, 11, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("primary", "grid", "scored"),
    [
        (tc.SquashedPrimaryCapsules(6, 4, 8), 2, True),
        (tc.SquashedPrimaryCapsules(6, 4, 8, coupled=True), 2, True),
        (tc.MatrixPrimaryCapsules(6, 4, (2, 4)), 11, True),
        (tc.NormalizedScorePrimaryCapsules(6, 4, (2, 4)), 11, True),
        (tc.LayerNormPrimaryCapsules(6, 4, (2, 4)), 11, False),
        (tc.LayerNormPrimaryCapsules(6, 4, (2, 4), scored=True), 11, True),
        (tc.NormalizedPrimaryCapsules(6, 4, (2, 4)), 6, True),
        (tc.DepthwisePrimaryCapsules(32, 4, 8, kernel_size=3, stride=2), 5, True),
    ],
)
def test_maps_of_capsules(primary: nn.Module, grid: int, scored: bool) -> None:
    channels = primary.in_channels
    assert isinstance(channels, int)
    capsules = primary(FEATURES.repeat(1, 6, 1, 1)[:, :channels])
    assert capsules.pose.shape == (2, grid, grid, 4, 8)
    assert (capsules.score is not None) == scored
    capsules.pose.sum().backward()


def test_poses_are_read_type_by_type() -> None:
    primary = tc.SquashedPrimaryCapsules(6, 4, 8)
    raw = primary.convolution(FEATURES)
    assert_near(primary(FEATURES).pose[1, 0, 1, 2], squash(raw[1, 16:24, 0, 1]), 1e-6)


def test_coupled_capsules_divide_before_the_bias() -> None:
    primary = tc.SquashedPrimaryCapsules(6, 4, 8, coupled=True)
    assert primary.convolution.bias is not None
    bias = primary.convolution.bias[:, None, None]
    raw = (primary.convolution(FEATURES) - bias) / 4 + bias
    assert_near(primary(FEATURES).pose[1, 0, 1, 2], squash(raw[1, 16:24, 0, 1]), 1e-5)


def test_squashed_capsules_have_their_length_as_presence() -> None:
    capsules = tc.SquashedPrimaryCapsules(6, 4, 8)(FEATURES)
    assert_near(capsules.presence, capsules.pose.norm(dim=-1), 1e-5)


def test_flattening_a_grid_keeps_capsules_together() -> None:
    pose, score = torch.randn(2, 3, 4, 5, 8), torch.randn(2, 3, 4, 5)
    flat = tc.flatten_grid(tc.Capsules(pose, score))
    assert flat.score is not None
    assert torch.equal(flat.pose[1, (2 * 4 + 1) * 5 + 3], pose[1, 2, 1, 3])
    assert torch.equal(flat.score[1, (2 * 4 + 1) * 5 + 3], score[1, 2, 1, 3])
    turned = tc.flatten_grid(tc.Capsules(pose, score), type_first=True)
    assert torch.equal(turned.pose[1, (3 * 3 + 2) * 4 + 1], pose[1, 2, 1, 3])


def test_a_kernel_as_large_as_the_map_is_a_dot_product_for_each_channel() -> None:
    torch.manual_seed(0)
    primary = tc.DepthwisePrimaryCapsules(6, 2, 3, kernel_size=(4, 5)).double()
    torch.nn.init.normal_(primary.convolution.bias)  # pyright: ignore
    features = numbers(3, 6, 4, 5).requires_grad_()
    found = primary(features)
    total = primary.convolution(features)[..., 0, 0].unflatten(1, (2, 3))
    expected = exponential_squash(total)
    assert_near(found.pose[:, 0, 0], expected)
    one, other = (
        torch.autograd.grad(each.sum(), [features, primary.convolution.weight]) for each in (found.pose, expected)
    )
    for mine, theirs in zip(one, other, strict=True):
        assert_near(mine, theirs)
    assert primary(numbers(3, 6, 6, 5)).pose.shape == (3, 3, 1, 2, 3), "a larger map has several positions"
