"""What would go wrong on a GPU, found without one.

On the ``meta`` device every look at a number (``bool()``, ``.item()``, a boolean mask) raises, where an accelerator
would make the host wait. A tensor that was left on the CPU raises too, unless it has no axes: ``OneDevice`` finds
those.
"""

from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torchcaps as tc
from tests.models.reduced import distinct, inputs, model
from tests.support import SINGLE_VALUE, assert_near, converge_soon, numbers
from tests.test_modules import MAKERS
from torchcaps.kernels import modes
from torchcaps.kernels.modes import in_full_precision
from torchcaps.kernels.workspace import Workspace, borrow_workspace
from torchcaps.votes import base, limits, shared, shared_votes
from torchcaps.votes.paths import Path, force_path

every_routing = pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
KINDS = {
    "dense": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing), (2, 5)),
    "shared": (lambda routing: tc.DenseCapsules(None, (2, 3), 4, (2, 3), routing), (2, 5)),
    "built": (lambda routing: tc.DenseCapsules(None, (1, 6), 4, (1, 1), routing), (2, 5)),
    "variable": (lambda routing: tc.DenseCapsules(None, (2, 3), None, (2, 3), routing), (2, 5)),
    "convolution": (lambda routing: tc.ConvCapsules(2, (2, 3), 4, (2, 3), 2, 2, routing), (2, 4, 3, 2)),
    "classes": (lambda routing: tc.ClassCapsules(2, (2, 3), 4, (2, 3), routing), (2, 2, 3, 2)),
    "normed": (lambda routing: tc.DenseCapsules(5, (2, 3), 4, (2, 3), routing, vote_norm="component"), (2, 5)),
}


class OneDevice(TorchDispatchMode):
    """Fails on every operation that takes or makes a tensor anywhere else than on the ``meta`` device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, found)):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, f"{func} with a tensor on {leaf.device}"
        return found


def go_back(parts: Sequence[Tensor | None]) -> None:
    torch.stack([part.sum() for part in parts if part is not None]).sum().backward()


CLOSED = ("shared", "variable", "classes")  # only closed forms keep what the backward pass needs
SETTINGS = [(kind, kept) for kind in KINDS for kept in (True, False) if kind in CLOSED or not kept]


@pytest.mark.parametrize(("kind", "kept"), SETTINGS, ids=lambda value: {True: "kept", False: "again"}.get(value, value))
@pytest.mark.parametrize("block", [1, 1 << 20], ids=["blocks", "one block"])
@every_routing
def test_layers_never_wait_for_the_device(
    kind: str, routing: str, block: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOCK_NUMBERS_ELSEWHERE", block)
    if not kept:
        monkeypatch.setattr(limits, "MOST_PAIRS_KEPT", 0)
    make, shape = KINDS[kind]
    layer = make(routing).to("meta")
    converge_soon(layer)
    pose = torch.empty(*shape, 6, device="meta", requires_grad=True)
    score = torch.empty(shape, device="meta", requires_grad=True)
    with OneDevice():
        parts = [part for part in layer(tc.Capsules(pose, score)) if part is not None]
        assert all(part.device.type == "meta" and part.dtype == torch.float32 for part in parts)
        go_back(parts)
    with OneDevice(), torch.no_grad():
        layer(tc.Capsules(pose, score))
    assert pose.grad is not None
    assert layer.weight.grad is not None


@pytest.mark.parametrize("name", distinct())
def test_models_never_wait_for_the_device(name: str) -> None:
    built = model(name)
    batch = inputs(built, 2).to("meta")
    built = built.to("meta")
    with OneDevice():
        logits = built(batch).logits
        assert logits.device.type == "meta"
        logits.sum().backward()


def make_general(children: int | None) -> nn.Module:
    vote = nn.Sequential(nn.Linear(4, 3 * 6), nn.Unflatten(-1, (3, 6)))
    return tc.GeneralVectorRouting(
        nn.Linear(4, 1),
        vote,
        nn.Linear(6, 4),
        lambda given, predicted: given @ predicted.mT / 2,
        children,
        3,
        in_pose=4,
    )


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("children", [5, None], ids=["known", "any number"])
@pytest.mark.parametrize("general", [False, True], ids=["vector", "general"])
def test_vector_routings_never_wait_for_the_device(general: bool, children: int | None, masked: bool) -> None:
    layer = (make_general(children) if general else tc.VectorRouting(children, 4, 3, 6)).to("meta")
    vectors = torch.empty(2, 5, 4, device="meta", requires_grad=True)
    mask = torch.empty(2, 5, device="meta") if masked else None
    pairs = torch.empty(5, 3, dtype=torch.bool, device="meta") if masked else None
    with OneDevice():
        go_back(layer(vectors, mask, pair_mask=pairs, return_credit=True))
    assert vectors.grad is not None


PRIMARY = ("squashed", "matrix", "normalized-score", "layer-norm", "normalized", "depthwise")
DECODERS = ("fully-connected", "deconvolution", "upsampling")


@pytest.mark.parametrize("name", PRIMARY)
def test_primary_capsules_never_wait_for_the_device(name: str) -> None:
    primary = MAKERS[name](device="meta")
    features = torch.empty(2, 4 if name == "depthwise" else 3, 11, 11, device="meta", requires_grad=True)
    with OneDevice():
        go_back(primary(features))
    assert features.grad is not None


@pytest.mark.parametrize("per", ["component", "type"])
def test_primary_capsules_with_batch_norm_never_wait_for_the_device(per: Literal["component", "type"]) -> None:
    with OneDevice():
        go_back(tc.BatchNormPrimaryCapsules(3, 2, per=per, device="meta")(torch.empty(2, 3, 11, 11, device="meta")))


@pytest.mark.parametrize("chosen", [None, (2,), (2, 2)], ids=["most active", "one", "two"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_never_wait_for_the_device(name: str, chosen: tuple[int, ...] | None) -> None:
    decoder = MAKERS[name](device="meta")
    pose = torch.empty(2, 3, 4, device="meta", requires_grad=True)
    capsules = tc.Capsules(pose, torch.empty(2, 3, device="meta"))
    with OneDevice():
        which = None if chosen is None else torch.zeros(chosen, dtype=torch.long, device="meta")
        go_back([decoder(capsules, which)])
    assert pose.grad is not None


@pytest.mark.parametrize("name", tc.losses.LOSSES)
def test_losses_never_wait_for_the_device(name: str) -> None:
    loss = tc.losses.LOSSES[name]()
    logits = torch.empty(3, 4, device="meta", requires_grad=True)
    target = torch.empty(3, 4, device="meta") if "binary" in name else torch.zeros(3, dtype=torch.long, device="meta")
    with OneDevice():
        loss(logits, target).sum().backward()


def test_the_harness_finds_a_look_at_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.QuadraticSource, "closed_form", False)  # then nobody is careful from the start
    monkeypatch.setattr(base.Votes, "_keeps", lambda self: True)
    with force_path(Path.BLOCKS), pytest.raises((RuntimeError, NotImplementedError)):
        KINDS["shared"][0]("heinsen").to("meta")(tc.Capsules(torch.empty(3, 5, 6, device="meta")))


def test_the_harness_finds_a_number_on_the_cpu() -> None:
    there = torch.ones((), device="meta")
    for step in (lambda: there * torch.tensor(2.0), lambda: there + torch.zeros(())):
        step()  # the device alone does not mind
        with pytest.raises(AssertionError, match="with a tensor on cpu"), OneDevice():
            step()


def test_buffers_are_kept_on_cpus_only() -> None:
    # Off CPUs the allocator knows which stream still works on a buffer; a list of ours does not.
    with borrow_workspace() as workspace:
        assert isinstance(workspace, Workspace)
    workspace = Workspace()
    for device, kept in (("meta", 0), ("cpu", 1)):
        workspace.give(torch.empty(8, device=device))
        assert len(workspace._free) == kept


class ShortenedProducts(TorchDispatchMode):
    """Matrix products as TF32 has them: factors rounded to 10 bits, unless full precision is asked for."""

    shortened = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        products = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.bmm.out)
        if func in products and torch.backends.cuda.matmul.fp32_precision == "tf32":
            self.shortened += 1
            args = tuple(_shorten(arg) if isinstance(arg, Tensor) else arg for arg in args)
        return func(*args, **(kwargs or {}))


def _shorten(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    mantissa, exponent = torch.frexp(tensor)
    return torch.ldexp((mantissa * 2048).round() / 2048, exponent)


@pytest.mark.parametrize("kind", ["dense", "shared", "built", "convolution", "classes"])
@every_routing
def test_routing_takes_no_shortened_products(kind: str, routing: str) -> None:
    torch.manual_seed(0)
    make, shape = KINDS[kind]
    layer = make(routing)
    converge_soon(layer)
    capsules = tc.Capsules(numbers(*shape, 6, dtype=torch.float32), numbers(*shape, dtype=torch.float32))
    expected = layer(capsules).pose
    (wanted,) = torch.autograd.grad(expected.square().sum(), [layer.weight])
    torch.set_float32_matmul_precision("high")
    try:
        with ShortenedProducts() as mode:
            found = layer(capsules).pose
            (gradient,) = torch.autograd.grad(found.square().sum(), [layer.weight])
            assert mode.shortened == 0
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"  # for everything else, as the user wants it
            torch.mm(torch.ones(2, 2), torch.ones(2, 2))
            assert mode.shortened == 1
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(found, expected)
    assert torch.equal(gradient, wanted)


def test_full_precision_is_put_back_by_the_last_to_leave() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with in_full_precision(torch.device("cpu")):
            with in_full_precision(torch.device("cpu")):
                assert all(backend.fp32_precision == "ieee" for backend in modes._PRODUCTS)
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("method", ["closed", "built"])
def test_only_the_examples_that_lose_digits_are_routed_again(method, monkeypatch: pytest.MonkeyPatch) -> None:
    """One example of a batch is a tight cluster away from its padding, the others are not."""
    pose = numbers(3, 12, 6, dtype=torch.float32)
    pose[1] = 5.0 + 1e-3 * pose[1]
    pose[1, ::2] = 0.0
    score = numbers(3, 12, dtype=torch.float32)
    score[1, ::2] = float("-inf")
    weight, beta = numbers(4, 3, 2, dtype=torch.float32), numbers(1, 4, scale=0.1, dtype=torch.float32)
    sizes: list[int] = []
    original = shared.QuadraticSource.open

    def watch(self, tensors, *, high_precision, at_once=False):
        sizes.append(len(tensors[0]) if high_precision else 0)
        return original(self, tensors, high_precision=high_precision)

    monkeypatch.setattr(shared.QuadraticSource, "open", watch)

    def route(kind, dtype: torch.dtype) -> list[Tensor]:
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (pose, weight, score)]
        votes = shared_votes(leaves[0], leaves[1], rows=2, method=kind)
        found = tc.routing.heinsen_routing(
            votes, leaves[2], beta_use=beta.to(dtype), beta_ignore=beta.to(dtype), num_iters=2
        )
        parts = [part for part in found if part is not None]
        return [*parts, *torch.autograd.grad(torch.stack([part.cos().sum() for part in parts]).sum(), leaves[:2])]

    found = route(method, torch.float32)
    assert sizes == ([0, 1] if method == "closed" else [])
    exact = route("built", torch.float64)
    for one, other in zip(found[:3], exact[:3], strict=True):
        assert_near(one, other, SINGLE_VALUE)
