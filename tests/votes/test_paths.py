"""The way that a call goes is the cheapest by the measured cost model."""

import importlib
import json
import re

import pytest
import torch

import torchcaps as tc
from benchmarks import fit_costs
from tests.support import ROOT, assert_near, numbers
from torchcaps.kernels import available, without_kernels
from torchcaps.votes import dense_votes, methods, shared_votes, summed, tensor_votes
from torchcaps.votes.costs import COSTS, NUMBERS_PER_THREAD
from torchcaps.votes.native import count_threads
from torchcaps.votes.paths import Path, estimate_seconds, find_cheapest, force_path

RECORD = json.loads(fit_costs.RECORD.read_text())


def test_the_model_is_the_one_that_was_measured() -> None:
    assert fit_costs.render(RECORD) == fit_costs.MODULE.read_text()


@pytest.mark.parametrize("size", RECORD["sizes"], ids=lambda size: f"{size['task']}-{size['votes']}-{size['weights']}")
def test_the_chosen_path_is_about_as_fast_as_any_that_was_measured(size: dict) -> None:
    task = {"training": size["task"].startswith("training"), "native": "without" not in size["task"]}
    paths = [path for path in Path if path.value in size["seconds"]]
    chosen = min(paths, key=lambda path: estimate_seconds(path, size["votes"], size["weights"], **task))
    assert size["seconds"][chosen.value] <= 1.25 * min(size["seconds"].values())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_chosen_sum_of_votes_is_about_as_fast_as_any_that_was_measured(threads: int) -> None:
    cases = {(*case["pose"], *case["matrix"]): case for case in RECORD["sums"]}
    for case in cases.values():
        pose, matrix = tuple(case["pose"]), tuple(case["matrix"])
        seconds = {
            (each["way"].startswith("kernel"), each["threads"]): each["seconds"]
            for each in RECORD["sums"]
            if (each["pose"], each["matrix"]) == (case["pose"], case["matrix"])
        }
        ways = {True: seconds[True, summed.count_threads(pose, matrix, threads)], False: seconds[False, threads]}
        assert ways[summed.kernel_pays(pose, matrix, threads)] <= 1.35 * min(ways.values()), case


def test_threads_have_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    found = [count_threads(share * NUMBERS_PER_THREAD) for share in (0, 1, 2, 3, 4, 1000)]
    assert found == [1, 1, 2, 3, 4, 4]
    assert count_threads(2 * NUMBERS_PER_THREAD - 1) == 1


def votes(examples: int, children: int) -> tc.votes.Votes:
    weight = torch.zeros(1, 10, 8, 16).expand(children, -1, -1, -1)
    return dense_votes(torch.zeros(1, 1, 8).expand(examples, children, -1), weight)


@pytest.mark.parametrize("training", [True, False])
def test_small_layers_go_the_plain_way_and_large_ones_do_not(training: bool) -> None:
    assert votes(1, 32).choose_path(training=training) is Path.PLAIN
    large = Path.NATIVE if available() else Path.BLOCKS
    assert votes(512, 1152).choose_path(training=training) is large
    with without_kernels():
        assert votes(1, 32).choose_path(training=training) is Path.PLAIN
        assert votes(512, 1152).choose_path(training=training) is Path.BLOCKS


@pytest.mark.parametrize("case", RECORD["shared"], ids=lambda case: f"{case['task']}-{case['sizes']}")
def test_the_chosen_method_is_about_as_fast_as_any_that_was_measured(case: dict) -> None:
    native = "without" not in case["task"]
    sizes = fit_costs.join_examples(case["sizes"])
    chosen = methods.find_cheapest_method(*sizes, native=native, training=case["task"].startswith("training"))
    assert case["seconds"][chosen] <= (1.25 if native else 1.4) * min(case["seconds"].values())


def shared(examples: int, children: int, **options) -> tc.votes.Votes:
    pose = torch.zeros(1, 1, 16).expand(examples, children, -1).requires_grad_(options.get("training", True))
    return shared_votes(pose, torch.zeros(10, 4, 4), rows=4)


def test_few_votes_by_shared_weights_are_made_as_in_dense_layers() -> None:
    assert repr(shared(20, 5184)).startswith("QuadraticSource")
    small = repr(shared(16, 32))
    assert small.startswith("PairSource" if available() else "SharedBuiltSource")
    with without_kernels():
        assert repr(shared(16, 32)).startswith("SharedBuiltSource")
    elsewhere = torch.empty(16, 32, 16, device="meta"), torch.empty(10, 4, 4, device="meta")
    assert repr(shared_votes(*elsewhere, rows=4)).startswith("SharedBuiltSource"), "fewer launches than in closed form"


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("name", tc.routing.ROUTINGS)
def test_all_methods_of_shared_weights_route_alike(name: str, with_bias: bool) -> None:
    given = [numbers(3, 7, 6), numbers(4, 3, 2), numbers(4, 2, 2)]
    routing = tc.routing.create(name)
    routing.attach(tc.routing.VoteShape(None, 4, 4, 3, 1, in_pose=6))
    routing.double()

    def route(method: str) -> list[torch.Tensor]:
        pose, weight, bias = leaves = [tensor.clone().requires_grad_() for tensor in given]
        votes = shared_votes(pose, weight, bias if with_bias else None, rows=2, method=method)  # pyright: ignore
        found = [part for part in routing(votes, pose.sum(-1)) if part is not None]
        total = torch.stack([part.sin().sum() for part in found]).sum()
        return [*found, *torch.autograd.grad(total, leaves[: 2 + with_bias])]

    for one, other in zip(route("auto"), route("built"), strict=True):
        assert_near(one, other)


@pytest.mark.skipif(not available(), reason="needs the native kernels")
def test_types_of_children_fill_vectors_or_cost_as_much_as_full_ones() -> None:
    """Native kernels make votes of sixteen types at a time: of one type, fifteen sixteenths of the work are for
    nothing."""
    sizes = {"native": True, "training": True, "numbers": 1 << 20, "weights": 1000}
    assert find_cheapest(**sizes, types=16) is Path.NATIVE
    assert find_cheapest(**sizes, types=1) is Path.PLAIN
    assert find_cheapest(**sizes | {"numbers": 1 << 24}, types=1) is Path.BLOCKS, "the plain way keeps all votes"
    assert find_cheapest(**sizes | {"numbers": 1 << 24}, types=17) is Path.NATIVE


def test_there_is_one_crossover() -> None:
    """With growing batches a path that was left is never taken again."""
    for training in (True, False):
        taken = [votes(1 << power, 32).choose_path(training=training) for power in range(14)]
        assert taken == sorted(taken, key=[Path.PLAIN, Path.NATIVE, Path.BLOCKS].index)
        assert len(set(taken)) == 2


def test_kinds_without_kernels() -> None:
    given = tensor_votes(torch.zeros(1, 1, 1, 1).expand(4096, 64, 10, 16))
    assert given.choose_path(training=True) is Path.BLOCKS
    assert tensor_votes(torch.zeros(1, 7, 3, 4)).choose_path(training=True) is Path.PLAIN
    closed = shared_votes(torch.zeros(1, 5, 16), torch.zeros(3, 4, 4), rows=4, method="closed")
    assert closed.choose_path(training=True) is Path.BLOCKS
    with force_path(Path.NATIVE):
        assert given.choose_path(training=True) is Path.BLOCKS


def test_an_accelerator_takes_what_fits_in_one_piece() -> None:
    """Every operation is a launch there."""
    for examples, expected in ((64, Path.PLAIN), (4096, Path.BLOCKS)):
        pose = torch.empty(examples, 1152, 8, device="meta")
        operator = dense_votes(pose, torch.empty(1152, 10, 8, 16, device="meta"))
        assert operator.choose_path(training=True) is expected


@pytest.mark.parametrize("path", Path)
def test_a_single_image_is_neither_cut_nor_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a single image was put together from pieces")

    monkeypatch.setattr("torchcaps.votes.blocks.torch.cat", refuse)
    pose, weight = numbers(1, 7, 4).requires_grad_(), numbers(7, 3, 4, 4).requires_grad_()
    with force_path(path):
        tc.routing.dynamic_routing(dense_votes(pose, weight)).pose.sum().backward()


def test_the_page_lists_limits_that_are_there() -> None:
    page = (ROOT / "docs" / "fast.md").read_text()
    listed = re.findall(r"^\| `([A-Z_]+)` \| `([a-z.]+)` \|", page, flags=re.MULTILINE)
    assert listed
    for name, module in listed:
        assert hasattr(importlib.import_module(f"torchcaps.{module}"), name), name


def test_costs_are_of_all_paths_and_positive() -> None:
    for task, paths in COSTS.items():
        assert set(paths) == {path.value for path in Path} - ({"native"} if "without" in task else set())
        assert all(cost >= 0 for costs in paths.values() for cost in costs)


@pytest.mark.parametrize("path", Path)
def test_votes_as_numbers_have_a_gradient_on_every_path(path: Path) -> None:
    """A routing of somebody's own may look at the votes themselves, next to the primitives."""

    def route(votes, weight):
        seen = votes.numbers()
        return ((seen.square().cos() * weight.unsqueeze(-1)).sum(2) * votes.mix(weight),)

    given = [numbers(5, 7, 4), numbers(7, 3, 4, 2), numbers(5, 7, 3)]

    def differentiate(path: Path) -> list[torch.Tensor]:
        pose, weight, pairs = [tensor.clone().requires_grad_() for tensor in given]
        with force_path(path):
            (found,) = dense_votes(pose, weight).run(route, per_example=[pairs])
        return [found, *torch.autograd.grad(found.sum(), [pose, weight, pairs])]

    pose, weight, pairs = [tensor.clone().requires_grad_() for tensor in given]
    votes = torch.einsum("bid,ijdh->bijh", pose, weight)
    expected = (votes.square().cos() * pairs.unsqueeze(-1)).sum(1) * torch.einsum("bij,bijh->bjh", pairs, votes)
    wanted = [expected, *torch.autograd.grad(expected.sum(), [pose, weight, pairs])]
    for one, other in zip(differentiate(path), wanted, strict=True):
        assert_near(one, other)


def test_few_votes_are_built_once_for_the_steps_of_a_routing() -> None:
    pose, weight = numbers(2, 7, 4), numbers(7, 3, 4, 2)
    even = torch.full((2, 7, 3), 1 / 3, dtype=torch.float64)
    votes = dense_votes(pose, weight)
    with force_path(Path.PLAIN):
        before = votes.mix(even)
        assert votes._few is not None
        built = votes._few[1]
        votes.mix(even)
        assert votes._few[1] is built
        weight.add_(1.0)  # as an optimizer does
        assert not torch.equal(votes.mix(even), before)
        with torch.inference_mode():
            inside = votes.mix(even)
        assert torch.equal(votes.mix(even.requires_grad_()), inside)  # no tensor of inference mode in a graph
