"""Every routing agrees with its reference, in value and in gradient, for every kind of votes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from itertools import product
from math import prod
from unittest import mock

import pytest
import torch
from torch import Tensor

from tests.routing.cases import CASES, MAIN, ON_A_GRID, RoutingCase
from tests.support import DOUBLE, SINGLE_GRADIENT, SINGLE_VALUE, Function, assert_near, gradients, list_pairs, numbers
from torchcaps.votes import Votes, convolutional_votes, dense_votes, limits, shared_votes
from torchcaps.votes.grid import Window
from torchcaps.votes.paths import Path, force_path

routings = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
main_routings = pytest.mark.parametrize("case", MAIN, ids=lambda case: case.name)


def name_of(value: RoutingCase | str) -> str:
    return value.name if isinstance(value, RoutingCase) else value


MakeVotes = Callable[[list[Tensor]], Votes | Tensor]


# The path, how many numbers a block of PyTorch's may hold, and how many pairs one of the native kernels; with none, all
# that their backward pass needs is kept.
WAYS: dict[str, tuple[Path, int, int]] = {
    "plain": (Path.PLAIN, 1, 0),
    "blocks of one": (Path.BLOCKS, 1, 0),
    "small blocks": (Path.BLOCKS, 100, 0),
    "native": (Path.NATIVE, 100, 0),
    "native, small blocks": (Path.NATIVE, 100, 25),
}


@contextmanager
def going(way: str) -> Iterator[None]:
    """Results depend neither on the path nor on how the batch is cut."""
    path, numbers, pairs = WAYS[way]
    kept = 0 if pairs else limits.MOST_NATIVE_PAIRS_KEPT
    native = mock.patch.multiple(limits, NATIVE_BLOCK_PAIRS=pairs, MOST_NATIVE_PAIRS_KEPT=kept)
    with mock.patch.dict(limits.BLOCK_NUMBERS, cpu=numbers), native, force_path(path):
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{way}: {error}") from error


def assert_parity(
    ours: Function,
    reference: Function,
    inputs: list[Tensor],
    value: float = DOUBLE,
    gradient: float = DOUBLE,
    reference_inputs: list[Tensor] | None = None,
) -> None:
    """The same values and gradients on every path; the reference, which is slow, is computed once."""
    expected, wanted = gradients(reference, reference_inputs or inputs)
    for way in WAYS:
        with going(way):
            results, found = gradients(ours, inputs)
            for result, right in zip(results, expected, strict=True):
                assert_near(result, right, value)
            for one, other in zip(found, wanted, strict=True):
                assert_near(one, other, gradient)


@routings
def test_votes_given_as_a_tensor(case: RoutingCase) -> None:
    votes = numbers(2, 7, 3, 4)
    assert_parity(case.run, case.refer, [votes, *case.tensors((2,), 7, 3, 4)])


LEARNED = [case for case in CASES if set(case.parameters) - {"parents", "logits"}]


@pytest.mark.parametrize("case", LEARNED, ids=lambda case: case.name)
def test_parameters_that_several_capsules_share(case: RoutingCase) -> None:
    votes, tensors = numbers(2, 5, 3, 4), case.tensors((2,), 5, 3, 4)
    first = len(tensors) - len(case.parameters)
    for axes in ((0,), (1,), (0, 1)):
        shared = [
            tensor if k < first else tensor[tuple(slice(0, 1 if axis in axes else None) for axis in range(tensor.ndim))]
            for k, tensor in enumerate(tensors)
        ]
        whole = [tensor.expand_as(full) for tensor, full in zip(shared, tensors, strict=True)]
        for way in WAYS:
            with going(way):
                for one, other in zip(case.run(votes, *shared), case.run(votes, *whole), strict=True):
                    if one is not None and other is not None:
                        assert_near(one, other)


@main_routings
@pytest.mark.parametrize("batch", [(), (1,), (3, 2)], ids=str)
def test_any_number_of_batch_axes(case: RoutingCase, batch: tuple[int, ...]) -> None:
    votes = numbers(*batch, 5, 2, 3)
    assert_parity(case.run, case.refer, [votes, *case.tensors(batch, 5, 2, 3)])


# For each kind of votes: the tensors it is made of, the operator, and the formula written out.
KINDS: dict[str, tuple[list[Tensor], MakeVotes, MakeVotes]] = {
    "dense-vectors": (
        [numbers(3, 5, 4), numbers(5, 2, 4, 6)],
        lambda t: dense_votes(t[0], t[1]),
        lambda t: torch.einsum("bid,ijdh->bijh", t[0], t[1]),
    ),
    "dense-matrices": (
        [numbers(3, 5, 6), numbers(5, 2, 3, 4), numbers(5, 2, 2, 4)],
        lambda t: dense_votes(t[0], t[1], t[2], rows=2),
        lambda t: (torch.einsum("bicd,ijdh->bijch", t[0].unflatten(-1, (2, 3)), t[1]) + t[2]).flatten(-2),
    ),
    "dense-groups": (
        [numbers(3, 6, 6), numbers(2, 2, 3, 3), numbers(2, 2, 2, 3), numbers(6, 2, 3)],
        lambda t: dense_votes(t[0], t[1], t[2], rows=2, coordinates=t[3]),
        lambda t: (
            torch.einsum("bicd,ijdh->bijch", t[0].unflatten(-1, (2, 3)), t[1].repeat(3, 1, 1, 1))
            + t[2].repeat(3, 1, 1, 1)
            + t[3][:, None]
        ).flatten(-2),
    ),
    "shared-closed": (
        [numbers(3, 5, 6), numbers(2, 3, 4), numbers(2, 2, 4)],
        lambda t: shared_votes(t[0], t[1], t[2], rows=2, method="closed"),
        lambda t: (torch.einsum("bicd,jdh->bijch", t[0].unflatten(-1, (2, 3)), t[1]) + t[2]).flatten(-2),
    ),
    "shared-built": (
        [numbers(3, 5, 6), numbers(2, 3, 4), numbers(2, 2, 4)],
        lambda t: shared_votes(t[0], t[1], t[2], rows=2, method="built"),
        lambda t: (torch.einsum("bicd,jdh->bijch", t[0].unflatten(-1, (2, 3)), t[1]) + t[2]).flatten(-2),
    ),
    "shared-without-bias": (
        [numbers(3, 5, 4), numbers(2, 4, 3)],
        lambda t: shared_votes(t[0], t[1], method="closed"),
        lambda t: torch.einsum("bid,jdh->bijh", t[0], t[1]),
    ),
}


@main_routings
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_votes(case: RoutingCase, kind: str) -> None:
    tensors, make, literal = KINDS[kind]
    count = len(tensors)
    *batch, i, j, p = make(tensors).shape
    assert_parity(
        lambda *all: case.run(make(list(all[:count])), *all[count:]),
        lambda *all: case.refer(literal(list(all[:count])), *all[count:]),
        [*tensors, *case.tensors(tuple(batch), i, j, p)],
    )


@pytest.mark.parametrize(("case", "kind"), list_pairs(MAIN, KINDS), ids=name_of)
def test_single_precision_is_close_to_the_double_reference(case: RoutingCase, kind: str) -> None:
    tensors, make, literal = KINDS[kind]
    count = len(tensors)
    *batch, i, j, p = make(tensors).shape
    single = [tensor.float() for tensor in [*tensors, *case.tensors(tuple(batch), i, j, p)]]
    assert_parity(
        lambda *all: case.run(make(list(all[:count])), *all[count:]),
        lambda *all: case.refer(literal(list(all[:count])), *all[count:]),
        single,
        SINGLE_VALUE,
        SINGLE_GRADIENT,
        reference_inputs=[tensor.double() for tensor in single],
    )


def written_out(pose: Tensor, weight: Tensor, bias: Tensor, window: Window, rows: int) -> tuple[Tensor, Tensor]:
    """A convolution of capsules as votes from every child of the grid for every parent of it, and who sees whom. There
    is no child in the padding."""
    batch, height, width, types, _ = pose.shape
    high, broad, _, parents, columns, _ = weight.shape
    tall, wide = window.count_positions((height, width))
    matrices = pose.unflatten(-1, (rows, columns))
    sees = torch.zeros(height * width * types, tall * wide * parents, dtype=torch.bool)
    nothing = pose.new_zeros(batch, rows * weight.shape[-1])
    votes: dict[tuple[int, int], Tensor] = {}
    for top, left, ky, kx in product(range(tall), range(wide), range(high), range(broad)):
        y = top * window.stride[0] - window.padding[0] + ky * window.dilation[0]
        x = left * window.stride[1] - window.padding[1] + kx * window.dilation[1]
        if not (0 <= y < height and 0 <= x < width):
            continue
        for t, j in product(range(types), range(parents)):
            pair = (y * width + x) * types + t, (top * wide + left) * parents + j
            sees[pair] = True
            votes[pair] = (matrices[:, y, x, t] @ weight[ky, kx, t, j] + bias[ky, kx, t, j]).flatten(1)
    all_pairs = product(range(sees.shape[0]), range(sees.shape[1]))
    built = torch.stack([votes.get(pair, nothing) for pair in all_pairs], 1)
    return built.reshape(batch, *sees.shape, -1), sees


def write_out_logits(logits: Tensor, size: tuple[int, int], window: Window) -> Tensor:
    """Logits of the children of each field as those of every child of the grid for every parent of it; zero where they
    do not see each other."""
    (height, width), (high, broad) = size, window.kernel_size
    _, tall, wide, field, parents = logits.shape
    types = field // (high * broad)
    written = logits.new_zeros(1, height * width * types, tall * wide * parents)
    for top, left, ky, kx in product(range(tall), range(wide), range(high), range(broad)):
        y = top * window.stride[0] - window.padding[0] + ky * window.dilation[0]
        x = left * window.stride[1] - window.padding[1] + kx * window.dilation[1]
        if 0 <= y < height and 0 <= x < width:
            children = slice((y * width + x) * types, (y * width + x + 1) * types)
            place = slice((ky * broad + kx) * types, (ky * broad + kx + 1) * types)
            at = slice((top * wide + left) * parents, (top * wide + left + 1) * parents)
            written[:, children, at] = logits[:, top, left, place]
    return written


WINDOWS = {
    "plain": ((4, 5), Window.of(3)),
    "strided": ((5, 4), Window.of(2, 2)),
    "both": ((5, 5), Window.of(3, 2)),
    "gaps": ((4, 4), Window.of(1, 3)),
    "oblong": ((4, 5), Window.of((2, 3), (2, 1))),
    "dilated": ((6, 5), Window.of((3, 2), 1, 0, (2, 3))),
    "dilated-strided": ((7, 4), Window.of((3, 2), (4, 1), 0, (2, 1))),
    "padded": ((3, 4), Window.of(3, 2, 1)),
    "padded-oblong": ((4, 3), Window.of((3, 2), (2, 1), (2, 1), (1, 2))),
    "padded-one-way": ((2, 3), Window.of((2, 3), 1, (1, 0))),
}


@pytest.mark.parametrize(("case", "window"), list_pairs(ON_A_GRID, WINDOWS), ids=name_of)
def test_parents_at_all_positions_compete_for_a_child(case: RoutingCase, window: str) -> None:
    size, field = WINDOWS[window]
    types, parents, rows = 2, 2, 2
    leading = (*field.kernel_size, types, parents)
    tensors = [numbers(1, *size, types, 4), numbers(*leading, 2, 2), numbers(*leading, rows, 2)]
    tall, wide = field.count_positions(size)
    shapes = {
        "beta_cost": (parents,),
        "beta_active": (parents,),
        "beta_use": (1, parents),
        "beta_ignore": (1, parents),
        "prior": (1, parents),
        "parents": (1, tall, wide, parents, 4),
        "logits": (1, tall, wide, prod(field.kernel_size) * types, parents),
    }
    if case.letters:
        shapes |= {name: (parents,) for name, letters in case.letters.items() if letters == "j"}
    scores = [numbers(1, *size, types, seed=1)] if case.scored else []
    learned = [numbers(*shapes[each], seed=5 + k) for k, each in enumerate(case.parameters)]

    def ours(*all: Tensor) -> list[Tensor | None]:
        _, stride, padding, dilation = field
        votes = convolutional_votes(
            all[0], all[1], all[2], stride=stride, padding=padding, dilation=dilation, rows=rows
        )
        return case.run(votes, *all[3:])

    def spelled_out(*all: Tensor) -> list[Tensor | None]:
        votes, sees = written_out(all[0], all[1], all[2], field, rows)
        rest = [all[3].flatten(1)] if case.scored else []
        for name, parameter in zip(case.parameters, all[3 + len(rest) :], strict=True):
            if name == "logits":
                rest.append(write_out_logits(parameter, size, field))
                continue
            whole = parameter.ndim > 2  # poses of the parents, which the grid has already
            rest.append(
                parameter.flatten(1, 3) if whole else parameter.repeat(*(1,) * (parameter.ndim - 1), tall * wide)
            )
        grouped = {"types": parents} if "types" in signature(case.judge).parameters else {}
        found = case.refer(votes, *rest, sees=sees, **grouped)
        return [None if f is None else f.reshape(1, tall, wide, parents, *f.shape[2:]) for f in found]

    assert_parity(ours, spelled_out, [*tensors, *scores, *learned])


PADDED = {name: window for name, window in WINDOWS.items() if any(window[1].padding)}


@pytest.mark.parametrize(("case", "window"), list_pairs(MAIN, PADDED, 3), ids=name_of)
def test_each_field_alone_has_the_children_that_are_there(case: RoutingCase, window: str) -> None:
    """A field at the border is a routing of fewer children."""
    size, field = PADDED[window]
    (high, broad), stride, padding, dilation = field
    tall, wide = field.count_positions(size)
    tensors = [numbers(2, *size, 3, 4), numbers(high, broad, 3, 2, 2, 2), numbers(high, broad, 3, 2, 2, 2, seed=3)]
    more = case.tensors((2, tall, wide), high * broad * 3, 2, 4)

    def ours(*all: Tensor) -> list[Tensor | None]:
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        return case.run(convolutional_votes(*all[:3], rows=2, competition="field", **options), *all[3:])

    def field_by_field(pose: Tensor, weight: Tensor, bias: Tensor, *more: Tensor) -> list[Tensor | None]:
        found: list[list[Tensor | None]] = []
        for top, left in product(range(tall), range(wide)):
            votes, there = [], []
            for place, (ky, kx) in enumerate(product(range(high), range(broad))):
                y = top * stride[0] - padding[0] + ky * dilation[0]
                x = left * stride[1] - padding[1] + kx * dilation[1]
                if 0 <= y < size[0] and 0 <= x < size[1]:
                    child = pose[:, y, x].unflatten(-1, (2, 2))  # b t c d
                    votes.append(torch.einsum("btcd,tjdh->btjch", child, weight[ky, kx]) + bias[ky, kx])
                    there += [place * 3 + t for t in range(3)]
            here = [tensor[:, top, left] if tensor.ndim > 2 else tensor for tensor in more]
            if case.scored:
                here[0] = here[0][:, there]
            names = ["score"] * case.scored + list(case.parameters)
            by_child = [name != "score" and case.axes_of(name) == "i j" for name in names]
            here = [tensor[there] if own else tensor for tensor, own in zip(here, by_child, strict=True)]
            pairs = [name != "score" and case.axes_of(name) == "b i j" for name in names]
            here = [tensor[:, there] if own else tensor for tensor, own in zip(here, pairs, strict=True)]
            found.append(case.refer(torch.cat(votes, 1).flatten(-2), *here))
        return [
            None if each[0] is None else torch.stack([e for e in each if e is not None], 1).unflatten(1, (tall, wide))
            for each in zip(*found, strict=True)
        ]

    assert_parity(ours, field_by_field, [*tensors, *more])


@main_routings
def test_routing_each_receptive_field_alone(case: RoutingCase) -> None:
    pose, weight = numbers(2, 5, 5, 3, 4), numbers(3, 3, 3, 2, 2, 2)

    def fields(pose: Tensor, weight: Tensor) -> Tensor:
        unfolded = pose.unfold(1, 3, 2).unfold(2, 3, 2)  # b y x t cd ky kx
        children = unfolded.permute(0, 1, 2, 5, 6, 3, 4).reshape(2, 2, 2, 27, 2, 2)
        return torch.einsum("byxicd,ijdh->byxijch", children, weight.reshape(27, 2, 2, 2)).flatten(-2)

    assert_parity(
        lambda *all: case.run(convolutional_votes(all[0], all[1], stride=2, rows=2, competition="field"), *all[2:]),
        lambda *all: case.refer(fields(all[0], all[1]), *all[2:]),
        [pose, weight, *case.tensors((2, 2, 2), 27, 2, 4)],
    )
