"""Kernels for few votes: every primitive and its gradients are those of PyTorch's operations."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from tests.support import DOUBLE, SINGLE_GRADIENT, assert_near
from torchcaps import kernels
from torchcaps.kernels import few
from torchcaps.kernels.few import carry_sum_back, carry_votes_back, make_votes, sum_up
from torchcaps.kernels.functions import Kernel, apply_kernel
from torchcaps.routing import dynamic_routing, fm, fm_agreement, self_routing, selfrouting, uniform_routing
from torchcaps.squashing import SQUASHES, _squash_plainly
from torchcaps.votes import dense_votes, plain, shared_votes, summed
from torchcaps.votes.costs import SUM_COSTS

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels are not compiled")

SHAPES = [(2, 1, 3, 7, 6), (2, 2, 3, 9, 16), (1, 1, 1, 1, 1), (2, 3, 4, 5, 8)]  # n q j i p
PRIMITIVES: dict[str, tuple[Kernel, tuple[str, ...]]] = {
    "mix": (plain._MIX, ("pairs",)),
    "mix by a column": (plain._MIX, ("column",)),
    "both": (plain._MIX_BOTH, ("pairs",)),
    "both by a column": (plain._MIX_BOTH, ("column",)),
    "squares": (plain._MIX_SQUARES, ("pairs", "parents")),
    "squares from zero": (plain._MIX_SQUARES, ("column", "none")),
    "agreement": (plain._AGREEMENT, ("parents",)),
    "distance": (plain._DISTANCE, ("parents", "parents")),
    "distance from zero": (plain._DISTANCE, ("none", "parents")),
    "attention": (plain._attention(0.3), ("parents",)),
    "inverse lengths": (plain._inverse_lengths(1e-10), ()),
    "inverse lengths of short votes": (plain._inverse_lengths(5.0), ()),
    "scores of shares": (selfrouting._SHARE_SCORE, ()),
}


def draw(kinds: tuple[str, ...], shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor | None]:
    n, q, j, i, p = shape
    sizes = {"pairs": (n, q, i, j), "column": (n, q, i, 1), "parents": (n, q, j, p)}
    torch.manual_seed(0)
    drawn = [torch.randn(shape, dtype=dtype, requires_grad=True)]
    return drawn + [None if kind == "none" else torch.rand(sizes[kind], dtype=dtype) for kind in kinds]


def results_of(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_values_and_gradients_of_every_order(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    kernel, kinds = PRIMITIVES[name]
    tensors = draw(kinds, shape, dtype)
    there = [tensor.requires_grad_() for tensor in tensors if tensor is not None]
    ours, right = results_of(apply_kernel(kernel, *tensors)), results_of(kernel.plain(*tensors))
    tolerance = DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT
    arriving = [torch.randn_like(part) for part in right]
    found = torch.autograd.grad(ours, there, arriving, retain_graph=True)
    expected = torch.autograd.grad(right, there, arriving, create_graph=True)
    for one, other in zip([*ours, *found], [*right, *expected], strict=True):
        assert_near(one, other, tolerance)
    again = torch.autograd.grad(ours, there, arriving, create_graph=True)
    if any(part.requires_grad for part in expected):
        second, right_second = (
            torch.autograd.grad(torch.stack([part.sin().sum() for part in parts]).sum(), there, allow_unused=True)
            for parts in (again, expected)
        )
        for one, other in zip(second, right_second, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert_near(one, other, tolerance)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_only_what_is_wanted_gets_a_gradient(wanted: tuple[bool, bool]) -> None:
    values, weight = draw(("pairs",), SHAPES[0], torch.float64)
    assert values is not None
    assert weight is not None
    found = plain._MIX.backward((values.detach(), weight), (torch.randn(2, 1, 3, 6).double(),), wanted)
    assert tuple(part is not None for part in found) == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("rows", "columns", "out_columns"), [(1, 8, 16), (4, 4, 4), (2, 3, 5)])
def test_the_way_back_to_poses_and_weights(
    rows: int, columns: int, out_columns: int, groups: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    pose = torch.randn(3, 2, 5 * groups, rows, columns, dtype=dtype, requires_grad=True)
    weight = torch.randn(5, 4, columns, out_columns, dtype=dtype, requires_grad=True)
    votes = torch.einsum("nqicd,ijdh->nqjich", pose, weight.repeat(groups, 1, 1, 1)).flatten(-2)
    assert_near(make_votes(pose.detach(), weight.detach()), votes, 1e-5 if dtype == torch.float32 else DOUBLE)
    grad = torch.randn(votes.shape, dtype=dtype)
    expected = torch.autograd.grad(votes, [pose, weight], grad)
    found = carry_votes_back(pose.detach(), weight.detach(), grad)
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, SINGLE_GRADIENT if dtype == torch.float32 else DOUBLE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-8, 1.0, 1e20])
@pytest.mark.parametrize("read", [(True, True), (True, False), (False, True)], ids=str)
def test_squash_by_exponentials(read: tuple[bool, bool], size: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    total = (size * torch.randn(3, 4, 5, dtype=dtype)).requires_grad_()
    results = []
    for squash in (SQUASHES["exponential"].both, _squash_plainly):
        parts = [part for part, want in zip(squash(total), read, strict=True) if want]
        (found,) = torch.autograd.grad(parts, total, [torch.ones_like(part).cumsum(-1) for part in parts])
        results.append([*parts, found])
    for one, other in zip(*results, strict=True):
        assert_near(one, other, DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT)


SUMS = [  # n c d h
    (1, 1, 8, 16), (11, 1, 9, 32), (3, 4, 4, 4), (2, 2, 3, 5), (9, 1, 13, 12), (9, 1, 16, 16), (5, 2, 72, 16),
]  # fmt: skip
WAYS = {  # and how many weights a child has
    "kernel by pairs": ("_KERNEL", 6),
    "kernel": ("_KERNEL", 1),
    "kernel, evenly": ("_KERNEL", 1),
    "product": ("_PRODUCT", 1),
    "pooled": ("_KERNEL", 1),  # all children are of one type
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sum_of_votes_by_one_number_for_all(dtype: torch.dtype) -> None:
    """Poses of vectors are multiplied as they lie."""
    torch.manual_seed(0)
    pose = torch.randn(3, 2, 5, 1, 4, dtype=dtype, requires_grad=True)
    weight = torch.randn(5, 6, 4, 7, dtype=dtype, requires_grad=True)
    found, expected = summed._multiply_flat(pose, weight), summed.sum_plainly(pose, weight, None)
    tolerance = DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT
    assert_near(found, expected, tolerance)
    arriving = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, [pose, weight], arriving),
        torch.autograd.grad(expected, [pose, weight], arriving),
        strict=True,
    ):
        assert_near(one, other, tolerance)


def test_large_layers_without_routing_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform routing of more poses than a cache holds, and that its couplings are one number in memory."""
    taken, multiply = [], summed._multiply_flat

    def see(*tensors: torch.Tensor) -> torch.Tensor:
        taken.append(tensors)
        return multiply(*tensors)

    monkeypatch.setattr(summed, "_multiply_flat", see)
    pays = summed.kernel_pays
    monkeypatch.setattr(summed, "kernel_pays", lambda *sizes: False)
    uniform_routing(dense_votes(torch.randn(3, 5, 4), torch.randn(5, 6, 4, 7)))
    assert len(taken) == 1
    assert not pays(pose=(128, 1, 1152, 1, 8), matrix=(1152, 10, 8, 16), threads=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sizes", SUMS, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_sum_of_votes_without_votes(
    way: str, sizes: tuple[int, int, int, int], groups: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    (examples, rows, columns, out_columns), (name, scales) = sizes, WAYS[way]
    monkeypatch.setattr(summed, "count_threads", lambda pose, matrix, threads: groups)  # on one thread and on two
    torch.manual_seed(0)
    pose = torch.randn(examples, 2, 5 * groups, rows, columns, dtype=dtype, requires_grad=True)
    types = 1 if way == "pooled" else 5
    weight = torch.randn(types, 6, columns, out_columns, dtype=dtype, requires_grad=True)
    share = torch.rand(examples, 2, 5 * groups, scales, dtype=dtype)
    share = (share.fill_(0.3) if way == "kernel, evenly" else share).requires_grad_()
    votes = torch.einsum("nqicd,ijdh->nqjich", pose, weight.repeat(5 * groups // types, 1, 1, 1)).flatten(-2)
    expected = torch.einsum("nqij,nqjip->nqjp", share.expand(-1, -1, -1, 6), votes)
    found = apply_kernel(getattr(summed, name), pose, weight, share)
    tolerance = DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT
    assert_near(found, expected, tolerance)
    tensors, arriving = [pose, weight, share], torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, tensors, arriving, create_graph=True)
    for one, other in zip(torch.autograd.grad(found, tensors, arriving, retain_graph=True), wanted, strict=True):
        assert_near(one, other, tolerance)
    again = torch.autograd.grad(found, tensors, arriving, create_graph=True)
    twice, wanted_twice = (
        torch.autograd.grad(torch.stack([part.sin().sum() for part in parts]).sum(), tensors)
        for parts in (again, wanted)
    )
    for one, other in zip(twice, wanted_twice, strict=True):
        assert_near(one, other, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("types", [1, 5], ids=["pooled", "by pairs"])
@pytest.mark.parametrize("sizes", SUMS, ids=str)
def test_even_sum_of_votes_needs_no_weights(sizes: tuple[int, int, int, int], types: int, dtype: torch.dtype) -> None:
    examples, rows, columns, out_columns = sizes
    torch.manual_seed(0)
    pose = torch.randn(examples, 2, 5, rows, columns, dtype=dtype, requires_grad=True)
    weight = torch.randn(types, 6, columns, out_columns, dtype=dtype, requires_grad=True)
    even = torch.full((examples, 2, 5, 1), 1 / 6, dtype=dtype)
    found, expected = apply_kernel(summed._KERNEL, pose, weight, None), summed.sum_plainly(pose, weight, even)
    tolerance = DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT
    assert_near(found, expected, tolerance)
    arriving = torch.randn_like(expected)
    results = [torch.autograd.grad(total, [pose, weight], arriving, create_graph=True) for total in (found, expected)]
    results.append(torch.autograd.grad(found, [pose, weight], arriving))
    for one, other, by_kernel in zip(*results, strict=True):
        assert_near(one, other, tolerance)
        assert_near(by_kernel, other, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("at_once", [1, 1000, 1 << 16])
@pytest.mark.parametrize("types", [1, 5])
@pytest.mark.parametrize("sizes", SUMS, ids=str)
def test_sums_of_unit_votes(
    sizes: tuple[int, int, int, int], types: int, at_once: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, rows, columns, out_columns = sizes
    torch.manual_seed(0)
    pose = torch.randn(examples, 2, 5, rows, columns, dtype=dtype)
    pose[:, :, 0] = 0.0  # a vote that is no unit vector
    weight = torch.randn(types, 6, columns, out_columns, dtype=dtype)
    monkeypatch.setattr(few, "UNITS_AT_ONCE", at_once)
    votes = torch.einsum("nqicd,ijdh->nqjich", pose, weight.repeat(5 // types, 1, 1, 1)).flatten(-2)
    units = votes * votes.square().sum(-1, keepdim=True).clamp_min(1e-10).rsqrt()
    for found, expected in zip(
        few.sum_units(pose, weight, 1e-10), (units.sum(-2), units.square().sum(-2)), strict=True
    ):
        assert_near(found, expected, DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT)


def test_few_votes_are_not_built_for_unit_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def watch(module: ModuleType, name: str) -> None:
        kernel = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *tensors: (taken.append(name), kernel(*tensors))[1])

    watch(plain, "make_votes")
    watch(summed, "sum_units")
    pose, weight = torch.randn(2, 7, 4), torch.randn(3, 4, 2)
    without = fm_agreement(shared_votes(pose, weight))
    trained = fm_agreement(shared_votes(pose, weight.requires_grad_()))
    assert taken == ["sum_units", "make_votes"]
    assert without.score is not None
    assert trained.score is not None
    assert_near(without.pose, trained.pose.detach(), SINGLE_GRADIENT)
    assert_near(without.score, trained.score.detach(), SINGLE_GRADIENT)


def test_threads_do_not_change_a_sum_of_votes() -> None:
    torch.manual_seed(0)
    pose, weight, scale = torch.randn(19, 1, 7, 1, 8), torch.randn(7, 5, 8, 16), torch.rand(19, 1, 5, 7)
    grad = torch.randn(19, 1, 5, 16)
    alone = [sum_up(pose, weight, scale), *carry_sum_back(pose, weight, scale, grad, of_scale=True)]
    both = [
        sum_up(pose, weight, scale, threads=2),
        *carry_sum_back(pose, weight, scale, grad, of_scale=True, threads=2),
    ]
    for one, other in zip(alone, both, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def test_few_votes_are_not_built_for_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("votes were built")

    monkeypatch.setattr(plain, "make_votes", refuse)
    pose, weight = torch.randn(2, 7, 4), torch.randn(7, 3, 4, 2).requires_grad_()
    self_routing(dense_votes(pose, weight), None, logits=torch.randn(2, 7, 3)).pose.sum().backward()
    with pytest.raises(AssertionError, match="votes were built"):
        dynamic_routing(dense_votes(pose, weight))


def test_sum_of_votes_goes_the_cheaper_way() -> None:
    def pays(examples: int, rows: int, columns: int, threads: int = 1) -> bool:
        return summed.kernel_pays((examples, 1, 32, rows, 8), (32, 10, 8, columns), threads)

    assert pays(1, 1, 16)  # a product would copy all weights for one row
    assert not pays(4096, 1, 5)
    for rows, columns in ((1, 16), (4, 4), (1, 5)):  # with growing batches a way that was left is never taken again
        for threads in (1, 2):
            taken = [pays(1 << power, rows, columns, threads) for power in range(20)]
            assert taken == sorted(taken, reverse=True)
    assert all(cost >= 0 for costs in SUM_COSTS.values() for cost in costs)


def test_sums_of_votes_take_threads_where_that_pays() -> None:
    def count(examples: int, threads: int) -> int:
        return summed.count_threads((examples, 1, 32, 1, 8), (32, 10, 8, 16), threads)

    assert [count(4096, threads) for threads in (1, 2, 4)] == [1, 2, 4]
    assert count(1, 2) == 1
    taken = [count(1 << power, 2) for power in range(14)]
    assert taken == sorted(taken)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-15, 1.0, 1e15])
def test_unit_vectors(size: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    total = (size * torch.randn(3, 4, 5, dtype=dtype)).requires_grad_()
    results = []
    for make_unit in (fm._make_unit, fm._UNIT.plain):
        found = make_unit(total)
        results.append([found, *torch.autograd.grad(found, total, torch.ones_like(found).cumsum(-1))])
    for one, other in zip(*results, strict=True):
        assert_near(one, other, DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_of_very_unequal_shares(dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min / 2
    cases = [[0.0], [0.0, lowest], [lowest, lowest], [-40.0, 0.0, -80.0], [3.0, 3.0], [0.0, -700.0, -900.0]]
    for case in cases:
        log_mass = torch.tensor([case], dtype=dtype, requires_grad=True)
        results = []
        for score in (selfrouting.share_score, selfrouting._share_score):
            found = score(log_mass)
            results.append([found, *torch.autograd.grad(found, log_mass, torch.ones_like(found).cumsum(-1))])
        for one, other in zip(*results, strict=True):
            assert_near(one, other, DOUBLE if dtype == torch.float64 else SINGLE_GRADIENT)
