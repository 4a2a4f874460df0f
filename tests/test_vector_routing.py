"""Vector routing (Heinsen 2022): equal to index loops in value and gradient, with and without masks; sound where the
author's code is not; never building its votes."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchcaps as tc
from tests.support import DOUBLE, assert_near, numbers
from torchcaps.layers import GeneralVectorRouting, VectorRouting
from torchcaps.routing import RoutedVectors, combine_credit
from torchcaps.routing import reference_vectors as reference

CHILDREN, PARENTS, IN_POSE, OUT_POSE = 5, 3, 4, 6
NAMES = {
    "W_A": "score_weight",
    "B_A": "score_bias",
    "W_F1": "vote_scale",
    "W_F2": "vote_weight",
    "B_F2": "vote_bias",
    "W_G1": "predict_weight",
    "W_G2": "predict_scale",
    "B_G2": "predict_bias",
    "W_S": "compare_weight",
    "B_S": "compare_bias",
}
PAIRS = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]], dtype=torch.bool)
SHARES = torch.tensor([[1.0, 0.0, 0.3, 1.0, 0.7], [1.0, 1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)


def make(in_caps: int | None = CHILDREN, out_pose: int = OUT_POSE, **options: Any) -> VectorRouting:
    """A layer of odd sizes in which every parameter, biases too, is a random number."""
    layer = VectorRouting(in_caps, IN_POSE, PARENTS, out_pose, dtype=torch.float64, **options)
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number))
    return layer


def route(layer: VectorRouting, vectors: Tensor, mask: Tensor | None = None, pairs: Tensor | None = None):
    found = layer(vectors, mask, pair_mask=pairs, return_credit=True)
    assert isinstance(found, RoutedVectors)
    return found


def letters(layer: VectorRouting) -> dict[str, Tensor]:
    """A layer's parameters by the letters of the paper."""
    weights = {letter: getattr(layer, name) for letter, name in NAMES.items()}
    for letter, beta in (("use", layer.beta_use), ("ign", layer.beta_ignore)):
        if isinstance(beta, nn.Linear):
            weights |= {f"{letter}_W": beta.weight, f"{letter}_B": beta.bias}
        else:
            weights[letter] = beta
    return weights


def differentiate(found: tuple[Tensor, ...], of: list[Tensor]) -> tuple[Tensor, ...]:
    loss = torch.stack([(part * numbers(*part.shape, seed=9)).sum() for part in found]).sum()
    grads = torch.autograd.grad(loss, of, allow_unused=True)
    return tuple(torch.zeros_like(one) if grad is None else grad for grad, one in zip(grads, of, strict=True))


@pytest.mark.parametrize("masked", ["not", "children", "pairs", "both"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"in_caps": None},
        {"in_caps": None, "out_pose": 1, "num_iters": 3},
        {"normalize": False, "num_iters": 3},
        {"num_iters": 1},
    ],
    ids=str,
)
def test_value_and_gradient_are_those_of_index_loops(options: dict, masked: str) -> None:
    layer = make(**options)
    vectors = numbers(2, CHILDREN, IN_POSE).requires_grad_()
    mask = SHARES if masked in ("children", "both") else None
    pairs = PAIRS if masked in ("pairs", "both") else None
    found = route(layer, vectors, mask, pairs)
    loops = [
        reference.vector_routing(
            vectors[b],
            letters(layer),
            num_iters=layer.num_iters,
            normalize=layer.normalize,
            mask=None if mask is None else mask[b],
            pairs=pairs,
        )
        for b in range(2)
    ]
    expected = tuple(torch.stack(parts) for parts in zip(*loops, strict=True))
    of = [vectors, *layer.parameters()]
    for ours, theirs in zip(found, expected, strict=True):
        assert_near(ours, theirs, DOUBLE)
    for ours, theirs in zip(differentiate(found, of), differentiate(expected, of), strict=True):
        assert_near(ours, theirs, DOUBLE)


def test_gradcheck_of_the_efficient_form() -> None:
    layer = make(None, num_iters=2)
    vectors = numbers(2, 3, IN_POSE).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: route(layer, given), (vectors,))


@pytest.mark.parametrize("masked", ["not", "children", "pairs", "both"])
def test_the_general_form_can_be_the_efficient_one(masked: str) -> None:
    """In value and gradient. The functions of the general form know nothing of masks, and get 1/√I as a number."""
    layer = make()
    mask = SHARES if masked in ("children", "both") else None
    pairs = PAIRS if masked in ("pairs", "both") else None
    there = (torch.ones(2, CHILDREN) if mask is None else mask) * (1.0 if pairs is None else pairs.any(-1))
    root = there.double().sum(-1)[:, None, None] ** -0.5

    def norm(parents: Tensor) -> Tensor:
        return nn.functional.layer_norm(parents, (OUT_POSE,))

    general = GeneralVectorRouting(
        score=lambda x: (x * root * layer.score_weight).sum(-1, keepdim=True) + layer.score_bias[:, None],
        vote=lambda x: torch.einsum("bid,jd,dh->bijh", x * root, layer.vote_scale, layer.vote_weight) + layer.vote_bias,
        predict=lambda y: norm(y) @ layer.predict_weight * layer.predict_scale + layer.predict_bias,
        compare=lambda x, seen: nn.functional.logsigmoid(x @ seen.mT * layer.compare_weight + layer.compare_bias),
        in_caps=CHILDREN,
        out_caps=PARENTS,
        dtype=torch.float64,
    )
    general.beta_use, general.beta_ignore = layer.beta_use, layer.beta_ignore
    vectors = numbers(2, CHILDREN, IN_POSE).requires_grad_()
    found = general(vectors, mask, pair_mask=pairs, return_credit=True)
    assert isinstance(found, RoutedVectors)
    found = found._replace(vectors=norm(found.vectors))
    expected = route(layer, vectors, mask, pairs)
    assert_near(found.vectors, expected.vectors, DOUBLE)
    assert_near(found.credit, expected.credit, DOUBLE)
    of = [vectors, *layer.parameters()]
    for ours, theirs in zip(differentiate(found, of), differentiate(expected, of), strict=True):
        assert_near(ours, theirs, DOUBLE)
    assert_near(norm(general(vectors, mask, pair_mask=pairs)), layer(vectors, mask, pair_mask=pairs), DOUBLE)


def test_the_general_form_takes_modules_and_any_number_of_children() -> None:
    torch.manual_seed(0)
    parts = {
        "score": nn.Linear(4, 1),
        "vote": nn.Sequential(nn.Linear(4, 6), nn.Unflatten(-1, (2, 3))),
        "predict": nn.Linear(3, 4),
    }
    compare = nn.Bilinear(4, 4, 1)
    layer = GeneralVectorRouting(
        **parts,
        compare=lambda x, seen: compare(*torch.broadcast_tensors(x[:, :, None], seen[:, None]))[..., 0],
        in_caps=None,
        out_caps=2,
        in_pose=4,
    )
    assert {name.partition(".")[0] for name in layer.state_dict()} == {*parts, "beta_use", "beta_ignore"}
    for count in (1, 6):
        mask = torch.ones(2, count, dtype=torch.bool)
        assert layer(torch.randn(2, count, 4), mask).shape == (2, 2, 3)
    layer(torch.randn(2, 5, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    layer.reset_parameters()


def test_what_is_masked_might_as_well_not_be_there() -> None:
    layer = make(None)
    vectors = numbers(2, 7, IN_POSE)
    mask = torch.tensor([[1, 1, 0, 1, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    found = route(layer, vectors, mask)
    alone = route(layer, vectors[:1, mask[0]])
    assert_near(found.vectors[:1], alone.vectors, DOUBLE)
    assert_near(found.credit[:1, mask[0]], alone.credit, DOUBLE)
    assert not found.credit[0, ~mask[0]].any()
    changed = torch.where(mask[..., None], vectors, 1e3)
    assert_near(route(layer, changed, mask).vectors, found.vectors, DOUBLE)
    pairs = mask[..., None].expand(-1, -1, PARENTS)
    assert_near(route(layer, vectors, pairs=pairs).vectors, found.vectors, DOUBLE)
    assert_near(route(layer, vectors[:1], mask[0]).vectors, found.vectors[:1], DOUBLE)


@pytest.mark.parametrize("in_caps", [None, CHILDREN])
def test_nothing_there_at_all_is_finite(in_caps: int | None) -> None:
    layer = make(in_caps)
    vectors = numbers(2, CHILDREN, IN_POSE).requires_grad_()
    nobody, nowhere = torch.zeros(2, CHILDREN, dtype=torch.bool), torch.zeros(CHILDREN, PARENTS, dtype=torch.bool)
    for found in (route(layer, vectors, nobody), route(layer, vectors, pairs=nowhere)):
        assert not found.vectors.any()
        assert not found.credit.any()
        assert all(bool(grad.isfinite().all()) for grad in differentiate(found, [vectors, *layer.parameters()]))
    zero = route(layer, torch.zeros(1, CHILDREN, IN_POSE, dtype=torch.float64))
    assert zero.vectors.isfinite().all()


def test_couplings_are_credit_without_betas() -> None:
    """With β_use = 1 and β_ign = 0 the credit is f(a) R: over the parents it sums to the child's presence."""
    layer = make(None)
    with torch.no_grad():
        for beta, value in ((layer.beta_use, 1.0), (layer.beta_ignore, 0.0)):
            assert isinstance(beta, nn.Linear)
            beta.weight.zero_()
            beta.bias.fill_(value)
    vectors = numbers(2, CHILDREN, IN_POSE)
    credit = route(layer, vectors).credit
    presence = (vectors @ layer.score_weight[0] * CHILDREN**-0.5 + layer.score_bias).sigmoid()
    assert_near(credit.sum(-1), presence, DOUBLE)
    assert (credit >= 0).all()


def test_the_order_of_children_and_parents() -> None:
    layer = make(None)
    vectors, order = numbers(2, CHILDREN, IN_POSE), torch.tensor([3, 0, 4, 1, 2])
    found, shuffled = route(layer, vectors), route(layer, vectors[:, order])
    assert_near(shuffled.vectors, found.vectors, DOUBLE)
    assert_near(shuffled.credit, found.credit[:, order], DOUBLE)
    fixed, again = make(), make()
    parents = torch.tensor([2, 0, 1])
    with torch.no_grad():
        for name, parameter in again.named_parameters():
            if parameter.shape[-1] == PARENTS:
                parameter.copy_(getattr(fixed, name)[..., parents])
            elif parameter.shape[0] == PARENTS:
                parameter.copy_(getattr(fixed, name)[parents])
    assert_near(again(vectors), fixed(vectors)[:, parents], DOUBLE)


def test_no_example_depends_on_the_others_of_its_batch() -> None:
    head = tc.heads.VectorRoutingHead(IN_POSE, 3, caps=4, dtype=torch.float64)
    vectors = numbers(3, 6, IN_POSE)
    for compute in (head, head.credit):
        together = compute(vectors)
        assert_near(torch.cat([compute(one[None]) for one in vectors]), together, DOUBLE)
    assert_near(head(vectors.unflatten(0, (1, 3)))[0], head(vectors), DOUBLE)
    assert_near(head(vectors[0]), head(vectors)[0], DOUBLE)


def test_credit_through_a_stack() -> None:
    first, second, third = numbers(2, 7, 5), numbers(2, 5, 4), numbers(2, 4, 3)
    product = (first @ second @ third).flatten(1)
    found = combine_credit([first, second, third], eps=0.0).flatten(1)
    assert_near(found, product / product.std(1, keepdim=True), DOUBLE)
    whole = combine_credit([first, second, third], scale="batch", eps=0.0)
    assert_near(whole, (first @ second @ third) / (first @ second @ third).std(), DOUBLE)
    step = first / (first.std() + 1e-5)
    step = step @ second
    step = step / (step.std() + 1e-5)
    assert_near(combine_credit([first, second], scale="batch"), step, DOUBLE)
    assert combine_credit([torch.zeros(2, 3, 2)]).isfinite().all()
    for scale in ("example", "batch"):
        single = combine_credit([numbers(1, 1, 2), numbers(1, 2, 1)], scale=scale, eps=0.0)
        assert single.isfinite().all()
        assert single.any()


@pytest.mark.parametrize("scale", ["example", "batch"])
def test_padding_changes_no_credit(scale: Literal["example", "batch"]) -> None:
    """3 tokens alone and padded to 23; what the layer says of padding does not matter."""
    first, second = numbers(2, 3, 5), numbers(2, 5, 4)
    alone = combine_credit([first, second], scale=scale)
    mask = torch.arange(23) < 3
    padded = torch.cat([first, torch.full((2, 20, 5), torch.nan, dtype=torch.float64)], 1)
    for given in (mask, mask.double(), mask.expand(2, -1)):
        found = combine_credit([padded, second], mask=given, scale=scale)
        assert_near(found[:, :3], alone, DOUBLE)
        assert not found[:, 3:].any()
    nobody = combine_credit([padded, second], mask=torch.zeros(2, 23), scale=scale)
    assert not nobody.any()
    head = tc.heads.VectorRoutingHead(IN_POSE, 3, caps=4, dtype=torch.float64)
    vectors = numbers(2, 23, IN_POSE)
    assert_near(head.credit(vectors, mask.expand(2, -1))[:, :3], head.credit(vectors[:, :3]), DOUBLE)
    assert_near(head.credit(vectors, mask)[:, :3], head.credit(vectors[:, :3]), DOUBLE)


class Largest(TorchDispatchMode):
    """The most numbers that any tensor has, forward and backward."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, Tensor):
                Largest.most = max(Largest.most, tensor.numel())
        return found


@pytest.mark.parametrize("in_caps", [None, 50])
def test_votes_are_never_built(in_caps: int | None) -> None:
    layer = VectorRouting(in_caps, 8, 16, 32)
    vectors = torch.randn(2, 50, 8)
    Largest.most = 0
    with Largest():
        layer(vectors, torch.ones(2, 50)).sum().backward()
    betas = 2 if in_caps is None else 1  # of linear maps, both at once
    assert Largest.most == 2 * 50 * 16 * betas, "children × parents, though children × parents × 32 are all votes"


def test_starts_are_the_authors() -> None:
    torch.manual_seed(0)
    layer = VectorRouting(60, 100, 50, 64)
    wide, narrow = 0.1, 0.125
    spreads = {"score_weight": 2 * wide, "vote_scale": 1.0, "vote_weight": 2 * wide, "predict_weight": narrow}
    spreads |= {"predict_scale": 1.0, "compare_weight": wide, "beta_use": 1.0, "beta_ignore": 1.0}
    own = dict(layer.named_parameters())
    for name, std in spreads.items():
        assert_near(own.pop(name).std().detach(), torch.tensor(std), 0.05)
    assert own.keys() == {"score_bias", "vote_bias", "predict_bias", "compare_bias"}
    assert not any(parameter.any() for parameter in own.values())
    before = {name: parameter.clone() for name, parameter in layer.named_parameters()}
    layer.vote_bias.data.fill_(1.0)
    layer.reset_parameters()
    assert not layer.vote_bias.any()
    assert not torch.equal(layer.beta_use, before["beta_use"])  # pyright: ignore[reportArgumentType]


def test_sizes_device_and_words() -> None:
    layer = VectorRouting(None, 4, 3, 1, device="meta", dtype=torch.float64)
    assert all(parameter.is_meta and parameter.dtype == torch.float64 for parameter in layer.parameters())
    assert layer(torch.zeros(2, 5, 4, device="meta", dtype=torch.float64)).shape == (2, 3, 1)
    elsewhere = torch.ones(2, 5, device="meta")  # nobody can look at its numbers
    found = layer(torch.zeros(2, 5, 4, device="meta", dtype=torch.float64), elsewhere, return_credit=True)
    assert combine_credit([found.credit], mask=elsewhere).shape == (2, 5, 3)
    words = repr(VectorRouting(None, 4, 3, 1, normalize=False))
    assert "in_caps=None, in_pose=4, out_caps=3, out_pose=1, num_iters=2, normalize=False" in words
    again = make()
    again.load_state_dict(make(num_iters=1).state_dict())


def test_half_precision_works_in_single() -> None:
    torch.manual_seed(0)
    layer = VectorRouting(None, 16, 5, 8)
    vectors = torch.randn(2, 9, 16)
    plain = layer(vectors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near(layer(vectors), plain, 1e-6)
        half = layer(vectors.bfloat16())
    assert half.dtype == torch.float32
    assert_near(half, plain, 0.05)
    for dtype in (torch.float16, torch.bfloat16):
        found = VectorRouting(None, 16, 5, 8, dtype=dtype)(vectors.to(dtype) * 100)
        assert found.isfinite().all()
