"""Convolutions that are not PyTorch's are held to PyTorch's, and chosen where they are faster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import fit_convolutions
from torchcaps import kernels
from torchcaps.convolution import Conv2d, PoseConv2d, costs, fourier, implicit, winograd
from torchcaps.convolution import sizes as convolution_sizes
from torchcaps.convolution.fourier import convolve_by_fourier
from torchcaps.convolution.layer import WAYS, list_native_ways
from torchcaps.convolution.sizes import Convolution, Way, count_points
from torchcaps.convolution.winograd import convolve_by_winograd
from torchcaps.kernels.library import without_kernels

# examples, channels in and out, pixels, window, stride, padding
SIZES = [
    (3, 4, 5, (20, 20), (9, 9), (2, 2), (0, 0)),  # CapsNet's
    (2, 3, 4, (13, 17), (5, 4), (2, 3), (1, 2)),
    (1, 2, 3, (7, 9), (7, 3), (1, 1), (3, 0)),
    (2, 2, 2, (6, 6), (2, 2), (3, 3), (0, 0)),  # pixels that no window sees
    (2, 3, 2, (5, 5), (5, 5), (2, 2), (0, 0)),  # one output
    (2, 1, 1, (6, 4), (1, 1), (1, 1), (0, 0)),
    (2, 18, 33, (9, 8), (4, 3), (1, 2), (2, 1)),  # channels that are not full vectors
]
LARGE = [
    (2, 4, 7, (40, 45), (3, 3), (1, 1), (0, 0)),  # positions in parts
    (18, 2, 13, (12, 9), (5, 5), (2, 2), (1, 0)),  # examples in parts, the last pixels unseen
    (1, 1, 3, (5, 4), (2, 2), (1, 1), (4, 5)),  # more padding than image
    (3, 2, 2, (7, 30), (1, 3), (4, 3), (0, 1)),  # a stride beyond the window
]
TILED = [
    (2, 3, 5, (32, 32), (3, 3), (1, 1), (1, 1)),  # residual networks'
    (3, 2, 4, (9, 14), (3, 3), (1, 1), (0, 2)),  # tiles that are not full
    (2, 2, 1, (3, 3), (3, 3), (1, 1), (0, 0)),  # one output
    (1, 2, 2, (70, 33), (3, 3), (1, 1), (2, 0)),  # a plane in strips
    (5, 2, 3, (20, 20), (3, 3), (1, 1), (1, 1)),  # examples in parts
]
needs_kernels = pytest.mark.skipif(not kernels.available(), reason="the kernels are not compiled")
EVERY = [
    *(("fourier", size, layout) for size in SIZES for layout in (torch.contiguous_format, torch.channels_last)),
    *(("winograd", size, torch.contiguous_format) for size in TILED),
    *(("implicit", size, torch.contiguous_format) for size in (*SIZES, *TILED, *LARGE)),
]
RECORD = json.loads(fit_convolutions.RECORD.read_text())


@pytest.fixture
def always() -> Iterator[None]:
    """Not PyTorch's way whatever it costs: the last of the ways that there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Convolution, "find_cheapest", lambda self, ways, *, gradients: ways[-1])
        yield


@needs_kernels
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 5e-6)])
@pytest.mark.parametrize(("way", "size", "layout"), EVERY)
def test_values_and_gradients_are_those_of_torch(way: Way, size, dtype, tolerance, layout) -> None:
    examples, below, above, pixels, window, stride, padding = size
    torch.manual_seed(0)
    features = torch.randn(examples, below, *pixels, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(above, below, *window, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    leaves = features, weight, torch.randn(above, dtype=dtype, requires_grad=True)
    found = WAYS[way](*leaves, Convolution(*size))
    assert found.is_contiguous(memory_format=layout)
    wanted = F.conv2d(leaves[0].double(), leaves[1].double(), leaves[2].double(), stride, padding)
    grad = torch.randn_like(found)
    ours = found, *torch.autograd.grad(found, leaves, grad)
    theirs = wanted, *torch.autograd.grad(wanted, leaves, grad.double())
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max()


@needs_kernels
def test_single_precision_rounds_no_more_than_torch_does() -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(2, 64, 20, 20).relu(), torch.randn(32, 64, 9, 9) / 72
    exact = F.conv2d(features.double(), weight.double(), stride=2)
    sizes = Convolution(2, 64, 32, (20, 20), (9, 9), (2, 2), (0, 0))
    ours = (convolve_by_fourier(features, weight, None, sizes) - exact).abs().max()
    theirs = (F.conv2d(features, weight, stride=2) - exact).abs().max()
    assert ours < 3 * theirs


@needs_kernels
def test_points_of_polynomials_cost_a_digit_at_most() -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(2, 64, 32, 32).relu(), torch.randn(64, 64, 3, 3) / 24
    exact = F.conv2d(features.double(), weight.double(), padding=1)
    sizes = Convolution(2, 64, 64, (32, 32), (3, 3), (1, 1), (1, 1))
    ours = (convolve_by_winograd(features, weight, None, sizes) - exact).abs().max()
    theirs = (F.conv2d(features, weight, padding=1) - exact).abs().max()
    assert ours < 10 * theirs
    assert ours < 5e-6 * exact.abs().max()


@needs_kernels
def test_blocks_of_channels_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 40, 9, 9, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 40, 5, 5, dtype=torch.float64, requires_grad=True)
    sizes = Convolution(2, 40, 4, (9, 9), (5, 5), (2, 2), (0, 0))
    whole = convolve_by_fourier(features, weight, None, sizes)
    grads = torch.autograd.grad(whole.sum(), (features, weight))
    monkeypatch.setattr(fourier, "MOST_AT_ONCE", 1)  # two vectors of channels and a half
    blocks = convolve_by_fourier(features, weight, None, sizes)
    torch.testing.assert_close(blocks, whole)
    for one, other in zip(torch.autograd.grad(blocks.sum(), (features, weight)), grads, strict=True):
        torch.testing.assert_close(one, other)


@needs_kernels
def test_tensors_in_any_order_of_memory() -> None:
    torch.manual_seed(0)
    features = torch.randn(9, 8, 3, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 3, 4, 3, dtype=torch.float64, requires_grad=True)
    sizes = Convolution(2, 3, 4, (9, 8), (3, 3), (1, 1), (0, 0))
    turned = features.permute(3, 2, 0, 1), weight.permute(2, 3, 0, 1)
    ours, theirs = convolve_by_fourier(*turned, None, sizes), F.conv2d(*turned)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn(7, 6, 2, 4, dtype=torch.float64).permute(2, 3, 0, 1)
    for one, other in zip(
        torch.autograd.grad(ours, (features, weight), grad),
        torch.autograd.grad(theirs, (features, weight), grad),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@needs_kernels
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", range(3))
def test_a_gradient_that_nobody_needs_is_not_made(which: int, way: Way) -> None:
    leaves = [torch.randn(2, 3, 7, 7), torch.randn(4, 3, 3, 3), torch.randn(4)]
    leaves[which].requires_grad_()
    sizes = Convolution(2, 3, 4, (7, 7), (3, 3), (1, 1), (0, 0))
    WAYS[way](leaves[0], leaves[1], leaves[2], sizes).sum().backward()
    assert [leaf.grad is not None for leaf in leaves] == [place == which for place in range(3)]


@needs_kernels
@pytest.mark.parametrize(("way", "stride"), [("fourier", 2), ("winograd", 1), ("implicit", 2)])
def test_second_derivatives(way: Way, stride: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)
    sizes = Convolution(1, 2, 2, (5, 5), (3, 3), (stride, stride), (0, 0))
    assert torch.autograd.gradgradcheck(
        lambda one, two, three: WAYS[way](one, two, three, sizes).sin(), (features, weight, bias)
    )


@needs_kernels
def test_results_do_not_depend_on_the_threads_of_the_transforms() -> None:
    torch.manual_seed(0)
    image, points = torch.randn(3, 5, 18, 18), [torch.empty(36, 5, 75) for _ in range(2)]
    sizes = Convolution(3, 5, 5, (18, 18), (3, 3), (1, 1), (1, 1))
    before = torch.get_num_threads()
    for threads, room in zip((1, 2), points, strict=True):
        torch.set_num_threads(threads)
        try:
            winograd._transform(winograd._SEE, image, room, sizes)
        finally:
            torch.set_num_threads(before)
    assert torch.equal(*points)


@needs_kernels
@pytest.mark.parametrize("examples", [1, 3, 20])
def test_results_do_not_depend_on_the_threads_of_the_implicit_product(examples: int) -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(examples, 3, 9, 9, requires_grad=True), torch.randn(20, 3, 3, 3, requires_grad=True)
    sizes = Convolution(examples, 3, 20, (9, 9), (3, 3), (2, 2), (1, 1))
    before, steps = torch.get_num_threads(), []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        try:
            total = WAYS["implicit"](features, weight, None, sizes)
            steps.append([total, *torch.autograd.grad(total.sum(), (features, weight))])
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*steps, strict=True))


@needs_kernels
def test_gradients_of_large_weights_are_not_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    leaves = torch.randn(4, 2, 6, 6, requires_grad=True), torch.randn(3, 2, 3, 3, requires_grad=True)
    sizes = Convolution(4, 2, 3, (6, 6), (3, 3), (1, 1), (0, 0))
    total, grad = WAYS["implicit"](*leaves, None, sizes), torch.randn(4, 3, 4, 4)
    in_parts = torch.autograd.grad(total, leaves, grad, retain_graph=True)
    monkeypatch.setattr(implicit, "MOST_IN_PARTS", 1)
    for one, other in zip(torch.autograd.grad(total, leaves, grad), in_parts, strict=True):
        torch.testing.assert_close(one, other)


@needs_kernels
@pytest.mark.parametrize("way", WAYS)
def test_a_step_can_be_repeated_bit_by_bit(way: Way) -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(5, 20, 14, 14, requires_grad=True), torch.randn(18, 20, 3, 3, requires_grad=True)
    sizes = Convolution(5, 20, 18, (14, 14), (3, 3), (1, 1), (0, 0))
    steps = []
    for _ in range(2):
        total = WAYS[way](features, weight, None, sizes)
        steps.append([total, *torch.autograd.grad(total.square().sum(), (features, weight))])
    assert all(torch.equal(one, other) for one, other in zip(*steps, strict=True))


@needs_kernels
@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (4, 4), (5, 6), (10, 10)])
def test_the_kernel_writes_all_points_and_no_more(grid: tuple[int, int]) -> None:
    sizes = Convolution(2, 3, 1, grid, (1, 1), (1, 1), (0, 0))
    room = torch.full((count_points(*grid) + 1, 2, 3), torch.nan)
    fourier._transform(fourier._FEATURES, torch.randn(2, 3, *grid), room, sizes, slice(0, 3))
    assert not room[:-1].isnan().any()
    assert room[-1].isnan().all()


@needs_kernels
@pytest.mark.parametrize(("way", "window", "stride"), [("fourier", 5, 2), ("winograd", 3, 1), ("implicit", 5, 2)])
def test_the_module_is_that_of_torch(monkeypatch: pytest.MonkeyPatch, way: Way, window: int, stride: int) -> None:
    monkeypatch.setattr(Convolution, "find_cheapest", lambda self, ways, *, gradients: ways[ways.index(way)])
    torch.manual_seed(0)
    theirs = nn.Conv2d(3, 4, window, stride=stride, padding=1)
    ours = Conv2d(3, 4, window, stride=stride, padding=1)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 12, 10)
    assert _find_way(ours(images)) == way
    torch.testing.assert_close(ours(images), theirs(images), atol=1e-5, rtol=1e-5)
    for frozen in ([], [ours.weight, theirs.weight]):
        for parameter in frozen:
            parameter.requires_grad_(False)
        gradients = []
        for module in (ours, theirs):
            module.zero_grad()
            module(images).square().sum().backward()
            gradients.append([module.weight.grad, module.get_parameter("bias").grad])
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_single_pixels_are_a_product_in_the_order_of_poses(dtype, tolerance, bias: bool) -> None:
    torch.manual_seed(0)
    ours = PoseConv2d(5, 6, 1, bias=bias, dtype=dtype)
    images = torch.randn(2, 5, 4, 3, dtype=dtype, requires_grad=True)
    leaves, steps = [images, *ours.parameters()], []
    for convolve in (ours, super(PoseConv2d, ours).forward):
        found = convolve(images)
        grads = torch.autograd.grad(found.sin().sum(), leaves, create_graph=True)
        steps.append([found, *grads, *torch.autograd.grad([grad.sin().sum() for grad in grads], leaves)])
    for one, other in zip(*steps, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)
    assert ours(images).permute(0, 2, 3, 1).is_contiguous()


@pytest.mark.parametrize(
    "module",
    [PoseConv2d(4, 8, 3), PoseConv2d(4, 8, 1, 2), PoseConv2d(4, 8, 1, padding=1), PoseConv2d(4, 8, 1, groups=2)],
    ids=["window", "stride", "padding", "groups"],
)
def test_larger_windows_of_poses_are_convolutions(module: PoseConv2d) -> None:
    images = torch.randn(2, 4, 8, 8)
    theirs = F.conv2d(images, module.weight, module.bias, module.stride, module.padding, 1, module.groups)
    torch.testing.assert_close(module(images), theirs, atol=1e-5, rtol=1e-5)


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
    assert _find_way(module(images)) == "direct"


@needs_kernels
def test_transforms_are_compiled_and_those_of_winograd_are_for_contiguous_images(always: None) -> None:
    module, images = Conv2d(2, 2, 3), torch.randn(4, 2, 6, 6)
    assert _find_way(module(images)) == "winograd"
    assert _find_way(module(images.contiguous(memory_format=torch.channels_last))) == "fourier"
    with without_kernels():
        assert _find_way(module(images)) == "direct"


def test_what_must_be_seen_through_goes_to_torch(always: None) -> None:
    module, images = Conv2d(2, 2, 3), torch.randn(4, 2, 6, 6)
    with torch.autocast("cpu"):
        assert module(images).dtype == torch.bfloat16
    mapped = torch.func.vmap(lambda image: module(image[None])[0])(images)
    torch.testing.assert_close(mapped, module(images), atol=1e-5, rtol=1e-5)
    assert _find_way(module(images[0])) == "direct"  # without a batch


def test_bad_input_is_an_error_of_torch() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        Conv2d(2, 2, 3)(torch.zeros(1, 3, 6, 6))
    with pytest.raises(RuntimeError, match="Kernel size"):
        Conv2d(2, 2, 9)(torch.zeros(1, 2, 6, 6))


@pytest.mark.parametrize("row", RECORD["sizes"], ids=lambda row: f"{row['size']}-{row['task']}")
def test_the_choice_is_at_most_a_quarter_slower_than_the_best(row: dict) -> None:
    sizes = fit_convolutions.describe(tuple(row["size"]))
    way = sizes.find_cheapest(row["seconds"], gradients=fit_convolutions.TASKS[row["task"]])
    assert row["seconds"][way] <= 1.25 * min(row["seconds"].values())


def test_costs_are_those_of_the_record() -> None:
    assert Path(costs.__file__).read_text() == fit_convolutions.render(RECORD)


def test_the_costs_fit_best_with_the_size_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all powers of two around it and those halfway between them."""

    def find_error(size: int) -> float:
        monkeypatch.setattr(convolution_sizes, "LEAVES_CACHE", size)
        model, total = fit_convolutions.fit(RECORD), 0.0
        for row in RECORD["sizes"]:
            gradients = fit_convolutions.TASKS[row["task"]]
            work = fit_convolutions.describe(row["size"]).count_work("fourier", gradients)
            seconds = sum(count * cost for count, cost in zip(work, model[row["task"]]["fourier"], strict=True))
            total += (seconds / row["seconds"]["fourier"] - 1.0) ** 2
        return total

    chosen = convolution_sizes.LEAVES_CACHE
    errors = {
        size: find_error(size) for size in (chosen, *(mega << 20 for mega in (2, 4, 8, 12, 16, 24, 32, 48, 64, 128)))
    }
    assert errors[chosen] <= 1.05 * min(errors.values())


def test_the_page_has_the_shares_of_the_record() -> None:
    page = fit_convolutions.PAGE.read_text(encoding="utf-8")
    _, begin, after = page.partition(fit_convolutions.BEGIN)
    table, end, _ = after.partition(fit_convolutions.END)
    assert begin
    assert end
    assert table == fit_convolutions.render_shares(RECORD)


def test_every_way_of_every_size_was_measured() -> None:
    measured = {(tuple(row["size"]), row["task"]): set(row["seconds"]) for row in RECORD["sizes"]}
    for task in fit_convolutions.TASKS:
        for size in fit_convolutions.list_sizes(task):
            assert measured[size, task] == {"direct", *list_native_ways(fit_convolutions.describe(size))}


@pytest.mark.parametrize(
    ("size", "way"),
    [
        ((128, 256, 256, (20, 20), (9, 9), (2, 2), (0, 0)), "fourier"),  # CapsNet's primary capsules
        ((32, 64, 64, (32, 32), (3, 3), (1, 1), (1, 1)), "winograd"),  # a residual network's
        ((20, 4, 64, (96, 96), (3, 3), (1, 1), (0, 0)), "implicit"),  # Heinsen's first two
        ((20, 64, 64, (94, 94), (3, 3), (2, 2), (0, 0)), "implicit"),
        ((64, 64, 128, (20, 20), (3, 3), (2, 2), (0, 0)), "direct"),
        ((8, 64, 64, (40, 40), (9, 9), (1, 1), (0, 0)), "fourier"),  # large windows on large grids
        ((4, 64, 64, (96, 96), (9, 9), (2, 2), (0, 0)), "direct"),  # whose points leave the cache
    ],
)
def test_networks_train_in_the_way_that_is_theirs(size, way: Way) -> None:
    sizes = Convolution(*size)
    assert sizes.find_cheapest(["direct", *list_native_ways(sizes)], gradients=(True, True)) == way


def test_one_image_of_capsnet_is_not_transformed() -> None:
    sizes = Convolution(1, 256, 256, (20, 20), (9, 9), (2, 2), (0, 0))
    assert sizes.find_cheapest(["direct", *list_native_ways(sizes)], gradients=(False, False)) != "fourier"


def _find_way(result: torch.Tensor) -> Way:
    node = result.grad_fn
    while node is not None:
        for way in WAYS:
            if way in node.name().lower():
                return way
        node = node.next_functions[0][0] if node.next_functions else None
    return "direct"
