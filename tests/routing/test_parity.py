"""Every routing agrees with its reference, in value and in gradient, for every kind of votes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.routing.cases import CASES, MAIN, RoutingCase
from tests.support import SINGLE_GRADIENT, SINGLE_VALUE, assert_near, assert_same, numbers
from torchcaps.votes import Votes, base, convolutional_votes, dense_votes, shared_votes

routings = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
main_routings = pytest.mark.parametrize("case", MAIN, ids=lambda case: case.name)
MakeVotes = Callable[[list[Tensor]], Votes | Tensor]


@pytest.fixture(params=[1, 100, 1 << 20], ids=["blocks-of-one", "small-blocks", "one-block"], autouse=True)
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on how the batch is cut."""
    monkeypatch.setitem(base.BLOCK_NUMBERS, "cpu", request.param)


@routings
def test_votes_given_as_a_tensor(case: RoutingCase) -> None:
    votes = numbers(2, 7, 3, 4)
    assert_same(case.run, case.refer, [votes, *case.tensors((2,), 7, 3, 4)])


LEARNED = [case for case in CASES if set(case.parameters) - {"parents"}]


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
        for one, other in zip(case.run(votes, *shared), case.run(votes, *whole), strict=True):
            if one is not None and other is not None:
                assert_near(one, other)


@main_routings
@pytest.mark.parametrize("batch", [(), (1,), (3, 2)], ids=str)
def test_any_number_of_batch_axes(case: RoutingCase, batch: tuple[int, ...]) -> None:
    votes = numbers(*batch, 5, 2, 3)
    assert_same(case.run, case.refer, [votes, *case.tensors(batch, 5, 2, 3)])


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
kinds = pytest.mark.parametrize("kind", KINDS)


@main_routings
@kinds
def test_every_kind_of_votes(case: RoutingCase, kind: str) -> None:
    tensors, make, literal = KINDS[kind]
    count = len(tensors)
    *batch, i, j, p = make(tensors).shape
    assert_same(
        lambda *all: case.run(make(list(all[:count])), *all[count:]),
        lambda *all: case.refer(literal(list(all[:count])), *all[count:]),
        [*tensors, *case.tensors(tuple(batch), i, j, p)],
    )


@main_routings
@kinds
def test_single_precision_is_close_to_the_double_reference(case: RoutingCase, kind: str) -> None:
    tensors, make, literal = KINDS[kind]
    count = len(tensors)
    *batch, i, j, p = make(tensors).shape
    single = [tensor.float() for tensor in [*tensors, *case.tensors(tuple(batch), i, j, p)]]
    assert_same(
        lambda *all: case.run(make(list(all[:count])), *all[count:]),
        lambda *all: case.refer(literal(list(all[:count])), *all[count:]),
        single,
        SINGLE_VALUE,
        SINGLE_GRADIENT,
        reference_inputs=[tensor.double() for tensor in single],
    )


def written_out(pose: Tensor, weight: Tensor, bias: Tensor, stride: int, rows: int) -> tuple[Tensor, Tensor]:
    """A convolution of capsules as votes from every child of the grid for every parent of it, and who sees whom."""
    batch, height, width, types, _ = pose.shape
    kernel, _, _, parents, columns, _ = weight.shape
    tall, wide = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    matrices = pose.unflatten(-1, (rows, columns))
    sees = torch.zeros(height * width * types, tall * wide * parents, dtype=torch.bool)
    everyone = []
    for y in range(height):
        for x in range(width):
            for t in range(types):
                child = (y * width + x) * types + t
                for top in range(tall):
                    for left in range(wide):
                        ky, kx = y - top * stride, x - left * stride
                        inside = 0 <= ky < kernel and 0 <= kx < kernel
                        for j in range(parents):
                            sees[child, (top * wide + left) * parents + j] = inside
                            if inside:
                                vote = matrices[:, y, x, t] @ weight[ky, kx, t, j] + bias[ky, kx, t, j]
                            else:
                                vote = pose.new_zeros(batch, rows, weight.shape[-1])
                            everyone.append(vote.flatten(1))
    votes = torch.stack(everyone, 1).reshape(batch, *sees.shape, -1)
    return votes, sees


@pytest.mark.parametrize(("size", "kernel", "stride"), [((4, 5), 3, 1), ((5, 4), 2, 2), ((5, 5), 3, 2), ((4, 4), 1, 3)])
@pytest.mark.parametrize("name", ["dynamic", "dynamic-orphan", "em", "heinsen"])
def test_parents_at_all_positions_compete_for_a_child(
    name: str, size: tuple[int, int], kernel: int, stride: int
) -> None:
    case = {case.name: case for case in CASES}[name]
    types, parents, rows = 2, 2, 2
    tensors = [
        numbers(1, *size, types, 4),
        numbers(kernel, kernel, types, parents, 2, 2),
        numbers(kernel, kernel, types, parents, rows, 2),
    ]
    betas = {"beta_cost": (parents,), "beta_active": (parents,)}
    if name == "heinsen":
        betas = {"beta_use": (1, parents), "beta_ignore": (1, parents)}
    scores = [numbers(1, *size, types, seed=1)] if case.scored else []
    learned = [numbers(*shape, seed=5) for shape in betas.values()] if case.parameters else []
    tall, wide = ((s - kernel) // stride + 1 for s in size)

    def ours(*all: Tensor) -> list[Tensor | None]:
        votes = convolutional_votes(all[0], all[1], all[2], stride=stride, rows=rows)
        return case.run(votes, *all[3:])

    def spelled_out(*all: Tensor) -> list[Tensor | None]:
        votes, sees = written_out(all[0], all[1], all[2], stride, rows)
        rest = list(all[3:])
        if case.scored:
            rest[0] = rest[0].flatten(1)
            spread = [beta.repeat(*(1,) * (beta.ndim - 1), tall * wide) for beta in rest[1:]]
            rest = [rest[0], *spread]
        found = case.refer(votes, *rest, sees=sees)
        return [None if f is None else f.reshape(1, tall, wide, parents, *f.shape[2:]) for f in found]

    assert_same(ours, spelled_out, [*tensors, *scores, *learned])


@main_routings
def test_routing_each_receptive_field_alone(case: RoutingCase) -> None:
    pose, weight = numbers(2, 5, 5, 3, 4), numbers(3, 3, 3, 2, 2, 2)

    def fields(pose: Tensor, weight: Tensor) -> Tensor:
        unfolded = pose.unfold(1, 3, 2).unfold(2, 3, 2)  # b y x t cd ky kx
        children = unfolded.permute(0, 1, 2, 5, 6, 3, 4).reshape(2, 2, 2, 27, 2, 2)
        return torch.einsum("byxicd,ijdh->byxijch", children, weight.reshape(27, 2, 2, 2)).flatten(-2)

    assert_same(
        lambda *all: case.run(convolutional_votes(all[0], all[1], stride=2, rows=2, competition="field"), *all[2:]),
        lambda *all: case.refer(fields(all[0], all[1]), *all[2:]),
        [pose, weight, *case.tensors((2, 2, 2), 27, 2, 4)],
    )
