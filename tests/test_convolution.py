"""Convolutions by Fourier transforms are held to PyTorch's, and chosen where they are faster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import fit_convolutions
from torchcaps import convolution
from torchcaps.convolution import Conv2d, Convolution, convolve_by_fourier, count_points, make_transforms

# examples, channels in and out, pixels, window, stride, padding
SIZES = [
    (3, 4, 5, (20, 20), (9, 9), (2, 2), (0, 0)),  # CapsNet's
    (2, 3, 4, (13, 17), (5, 4), (2, 3), (1, 2)),
    (1, 2, 3, (7, 9), (7, 3), (1, 1), (3, 0)),
    (2, 2, 2, (6, 6), (2, 2), (3, 3), (0, 0)),  # pixels that no window sees
    (2, 3, 2, (5, 5), (5, 5), (2, 2), (0, 0)),  # one output
    (2, 1, 1, (6, 4), (1, 1), (1, 1), (0, 0)),
]
RECORD = json.loads(fit_convolutions.RECORD.read_text())


@pytest.fixture
def always() -> Iterator[None]:
    """Transforms whatever they cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Convolution, "is_faster", lambda self, *, training: True)
        yield


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_torch(size, dtype, tolerance, layout) -> None:
    examples, below, above, pixels, window, stride, padding = size
    torch.manual_seed(0)
    features = torch.randn(examples, below, *pixels, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(above, below, *window, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    found = convolve_by_fourier(features, weight, Convolution(*size))
    wanted = F.conv2d(features, weight, None, stride, padding)
    grad = torch.randn_like(wanted)
    assert found.is_contiguous(memory_format=layout)
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)
    for one, other in zip(
        torch.autograd.grad(found, (features, weight), grad),
        torch.autograd.grad(wanted, (features, weight), grad),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def test_single_precision_rounds_no_more_than_torch_does() -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(2, 64, 20, 20).relu(), torch.randn(32, 64, 9, 9) / 72
    exact = F.conv2d(features.double(), weight.double(), stride=2)
    sizes = Convolution(2, 64, 32, (20, 20), (9, 9), (2, 2), (0, 0))
    ours = (convolve_by_fourier(features, weight, sizes) - exact).abs().max()
    theirs = (F.conv2d(features, weight, stride=2) - exact).abs().max()
    assert ours < 3 * theirs


def test_parts_of_the_points_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 3, 9, 9, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    sizes = Convolution(2, 3, 4, (9, 9), (5, 5), (2, 2), (0, 0))
    whole = convolve_by_fourier(features, weight, sizes)
    monkeypatch.setattr(convolution, "MOST_KEPT", 8 * 80 * 2 * 3)  # three points and a rest
    parts = convolve_by_fourier(features, weight, sizes)
    torch.testing.assert_close(parts, whole)
    for one, other in zip(
        torch.autograd.grad(parts.sum(), (features, weight)),
        torch.autograd.grad(whole.sum(), (features, weight)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("which", [0, 1])
def test_a_gradient_that_nobody_needs_is_not_made(which: int) -> None:
    leaves = [torch.randn(2, 3, 7, 7), torch.randn(4, 3, 3, 3)]
    leaves[which].requires_grad_()
    sizes = Convolution(2, 3, 4, (7, 7), (3, 3), (1, 1), (0, 0))
    convolve_by_fourier(leaves[0], leaves[1], sizes).sum().backward()
    assert leaves[which].grad is not None
    assert leaves[1 - which].grad is None


def test_second_derivatives() -> None:
    torch.manual_seed(0)
    features = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    sizes = Convolution(1, 2, 2, (5, 5), (3, 3), (2, 2), (0, 0))
    assert torch.autograd.gradgradcheck(lambda one, two: convolve_by_fourier(one, two, sizes), (features, weight))


@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (4, 4), (5, 6), (10, 10)])
def test_points_are_the_rows_of_the_transforms(grid: tuple[int, int]) -> None:
    assert len(make_transforms(grid, (1, 1), grid, torch.float64)[0]) == count_points(*grid)


def test_the_module_is_that_of_torch(always: None) -> None:
    torch.manual_seed(0)
    theirs = nn.Conv2d(3, 4, 5, stride=2, padding=1)
    ours = Conv2d(3, 4, 5, stride=2, padding=1)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 12, 10)
    assert _goes_by_fourier(ours(images))
    torch.testing.assert_close(ours(images), theirs(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "module",
    [
        Conv2d(4, 4, 3, groups=2),
        Conv2d(4, 4, 3, dilation=2),
        Conv2d(4, 4, 3, padding="same"),
        Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        Conv2d(4, 4, 3).to(torch.bfloat16),
    ],
    ids=["groups", "dilation", "same", "reflect", "bfloat16"],
)
def test_other_convolutions_go_to_torch(always: None, module: Conv2d) -> None:
    images = torch.randn(2, 4, 8, 8, dtype=module.weight.dtype)
    assert not _goes_by_fourier(module(images))


def test_what_must_be_seen_through_goes_to_torch(always: None) -> None:
    module, images = Conv2d(2, 2, 3), torch.randn(4, 2, 6, 6)
    with torch.autocast("cpu"):
        assert module(images).dtype == torch.bfloat16
    mapped = torch.func.vmap(lambda image: module(image[None])[0])(images)
    torch.testing.assert_close(mapped, module(images), atol=1e-5, rtol=1e-5)
    assert not _goes_by_fourier(module(images[0]))  # without a batch


def test_bad_input_is_an_error_of_torch() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        Conv2d(2, 2, 3)(torch.zeros(1, 3, 6, 6))
    with pytest.raises(RuntimeError, match="Kernel size"):
        Conv2d(2, 2, 9)(torch.zeros(1, 2, 6, 6))


@pytest.mark.parametrize("row", RECORD["sizes"], ids=lambda row: f"{row['size']}-{row['training']}")
def test_the_choice_is_at_most_a_quarter_slower_than_the_best(row: dict) -> None:
    faster = fit_convolutions.describe(tuple(row["size"])).is_faster(training=row["training"])
    assert row["seconds"]["fourier" if faster else "direct"] <= 1.25 * min(row["seconds"].values())


def test_costs_are_those_of_the_record() -> None:
    assert Path(convolution.__file__).with_name("convolution_costs.py").read_text() == fit_convolutions.render(RECORD)


def test_capsnet_goes_by_fourier_in_training_and_not_for_one_image() -> None:
    sizes = [Convolution(examples, 256, 256, (20, 20), (9, 9), (2, 2), (0, 0)) for examples in (1, 128)]
    assert not sizes[0].is_faster(training=False)
    assert sizes[1].is_faster(training=True)


def _goes_by_fourier(result: torch.Tensor) -> bool:
    node = result.grad_fn
    while node is not None:
        if "Fourier" in node.name():
            return True
        node = node.next_functions[0][0] if node.next_functions else None
    return False
