"""Swish and batch norm as one operation are held to PyTorch's two."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.backbones import SwishStack, swish_norm
from torchcaps.backbones.swish_norm import swish_and_norm
from torchcaps.kernels.library import without_kernels

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="the kernels are not compiled")
SIZES = [(3, 5, 7, 6), (2, 1, 16, 16), (1, 3, 1, 2), (20, 2, 94, 94)]  # the last is Heinsen's


def _make(size: tuple[int, ...], dtype: torch.dtype = torch.float64) -> tuple[Tensor, nn.BatchNorm2d]:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(size[1], dtype=dtype)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return (3 * torch.randn(size, dtype=dtype) + 1).requires_grad_(), norm


def _is_one(result: Tensor) -> bool:
    return result.grad_fn is not None and "SwishNorm" in result.grad_fn.name()


@needs_kernels
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
@pytest.mark.parametrize("size", SIZES)
def test_values_gradients_and_running_numbers_are_those_of_torch(size, dtype, tolerance: float) -> None:
    features, norm = _make(size, dtype)
    theirs, exact = deepcopy(norm).double(), features.detach().double().requires_grad_()
    found, wanted = swish_and_norm(features, nn.SiLU(), norm), theirs(F.silu(exact))
    assert _is_one(found)
    grad = torch.randn(size, dtype=dtype)
    ours = [found, *torch.autograd.grad(found, (features, *norm.parameters()), grad), *norm.buffers()]
    wanted = [wanted, *torch.autograd.grad(wanted, (exact, *theirs.parameters()), grad.double()), *theirs.buffers()]
    for one, other in zip(ours, wanted, strict=True):
        assert (one - other).abs().max() <= tolerance * other.detach().abs().max().clamp_min(1.0)


@needs_kernels
@pytest.mark.parametrize("number", [0.0, -0.0, 1e-30, -80.0, -1e4, 1e4, 88.0])
def test_numbers_of_every_size(number: float) -> None:
    features, norm = _make((2, 1, 4, 4))
    features = features.detach()
    features[0, 0, 0, 0] = number
    features.requires_grad_()
    found = swish_and_norm(features, nn.SiLU(), deepcopy(norm))
    wanted = norm(F.silu(features))
    grad = torch.randn_like(found)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        *(torch.autograd.grad(total, features, grad)[0] for total in (found, wanted)), atol=1e-11, rtol=1e-11
    )


@needs_kernels
def test_second_derivatives() -> None:
    features, norm = _make((2, 2, 2, 3))
    leaves = (features, norm.weight, norm.bias)
    assert torch.autograd.gradgradcheck(lambda *three: swish_norm._SwishNorm.apply(*three, 1e-5)[0].sin(), leaves)


@needs_kernels
@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_numbers_of_several_steps(momentum: float | None) -> None:
    ours = nn.BatchNorm2d(3, momentum=momentum, dtype=torch.float64)
    theirs = deepcopy(ours)
    for _ in range(3):
        images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
        swish_and_norm(images, nn.SiLU(), ours)
        theirs(F.silu(images))
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other)


@needs_kernels
def test_results_do_not_depend_on_the_threads() -> None:
    features, norm = _make((3, 5, 9, 9), torch.float32)
    before, steps = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            total = swish_and_norm(features, nn.SiLU(), norm)
            steps.append([total, *torch.autograd.grad(total.square().sum(), (features, *norm.parameters()))])
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*steps, strict=True))


@needs_kernels
def test_what_is_not_one_operation_goes_to_torch() -> None:
    features, norm = _make((2, 2, 4, 4), torch.float32)
    swish = nn.SiLU()
    assert _is_one(swish_and_norm(features, swish, norm))
    with without_kernels():
        assert not _is_one(swish_and_norm(features, swish, norm))
    assert not _is_one(swish_and_norm(features.contiguous(memory_format=torch.channels_last), swish, norm))
    assert not _is_one(swish_and_norm(features, nn.ReLU(), norm))
    assert not _is_one(swish_and_norm(features, swish, deepcopy(norm).eval()))
    with torch.autocast("cpu"):
        assert not _is_one(swish_and_norm(features, swish, norm))
    seen = []
    with norm.register_forward_hook(lambda *arguments: seen.append(arguments)):
        assert not _is_one(swish_and_norm(features, swish, norm))
    assert len(seen) == 1


@needs_kernels
def test_one_number_for_each_channel_is_an_error_of_torch() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        swish_and_norm(torch.zeros(1, 2, 1, 1), nn.SiLU(), nn.BatchNorm2d(2))


def test_the_stack_is_its_parts_one_after_the_other() -> None:
    torch.manual_seed(0)
    stack = SwishStack(3, 4, depth=3, dtype=torch.float64)
    images, plain = torch.randn(2, 3, 20, 20, dtype=torch.float64), deepcopy(stack)
    torch.testing.assert_close(stack(images), nn.Sequential.forward(plain, images))
    stack(images).square().sum().backward()
    nn.Sequential.forward(plain, images).square().sum().backward()
    for (name, one), other in zip(stack.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-10, rtol=1e-10, msg=name)
    for one, other in zip(stack.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    stack.eval()
    plain.eval()
    torch.testing.assert_close(stack(images), nn.Sequential.forward(plain, images))
