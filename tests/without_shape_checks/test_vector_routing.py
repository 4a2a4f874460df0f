"""Vector routing as users run it: what it refuses, compiled, and exported."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.support import SINGLE_VALUE, assert_near, numbers
from torchcaps.export.runtime import open_session, run_session
from torchcaps.layers import GeneralVectorRouting, VectorRouting
from torchcaps.routing import combine_credit, vector_routing

CHILDREN, PARENTS, IN_POSE, OUT_POSE = 5, 3, 4, 6

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHCAPS_PLAIN"),
    reason="run with TORCHCAPS_PLAIN=1: compilers cannot see through shape checks, which find wrong shapes first",
)


def make(in_caps: int | None = CHILDREN) -> VectorRouting:
    torch.manual_seed(0)
    return VectorRouting(in_caps, IN_POSE, PARENTS, OUT_POSE)


def test_what_credit_refuses() -> None:
    with pytest.raises(ValueError, match="no credit to combine"):
        combine_credit([])
    with pytest.raises(ValueError, match=r"\(2, 4, 3\) does not follow on \(2, 7, 5\)"):
        combine_credit([numbers(2, 7, 5), numbers(2, 4, 3)])
    with pytest.raises(ValueError, match="scale is 'all'; expected 'example' or 'batch'"):
        combine_credit([numbers(2, 3)], scale="all")  # pyright: ignore[reportArgumentType]


def test_what_the_general_form_refuses() -> None:
    parts: dict[str, Any] = {"vote": lambda x: x[:, :, None].expand(-1, -1, 2, -1), "predict": nn.Identity()}
    parts["compare"] = lambda x, seen: x @ seen.mT
    with pytest.raises(ValueError, match=r"in_caps=None takes any number of children.*give in_pose"):
        GeneralVectorRouting(torch.sum, **parts, in_caps=None, out_caps=2)
    wrong = GeneralVectorRouting(lambda x: x, **parts, in_caps=3, out_caps=2)
    with pytest.raises(ValueError, match=r"score returned a tensor of shape \(2, 3, 4\); expected \(2, 3\)"):
        wrong(torch.randn(2, 3, 4))
    bad: dict[str, Any] = parts | {"vote": lambda x: x}
    wrong = GeneralVectorRouting(lambda x: x.sum(-1), **bad, in_caps=3, out_caps=2)
    with pytest.raises(ValueError, match=r"vote returned a tensor of shape \(2, 3, h\); expected \(2, 3, 2, h\)"):
        wrong(torch.randn(2, 3, 4))
    worse: dict[str, Any] = parts | {"compare": lambda x, seen: seen}
    with pytest.raises(ValueError, match=r"compare returned a tensor of shape \(2, 2, 4\); expected \(2, 3, 2\)"):
        GeneralVectorRouting(lambda x: x.sum(-1), **worse, in_caps=3, out_caps=2)(torch.randn(2, 3, 4))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((5, 4, 1, 6), "at least two; got out_caps=1"),
        ((5, 4, None, 6), "at least two; got out_caps=None"),
        ((0, 4, 3, 6), "in_caps is a whole number of at least 1; got in_caps=0"),
        ((-1, 4, 3, 6), "got in_caps=-1"),
        ((5, 4, 3, 0), "got out_pose=0"),
    ],
)
def test_wrong_sizes(sizes: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VectorRouting(*sizes)


def test_wrong_inputs_are_quoted() -> None:
    layer, open_layer, vectors = make(), make(None), torch.randn(2, CHILDREN, IN_POSE)
    with pytest.raises(ValueError, match=r"num_iters is a whole number of at least 1; got num_iters=0"):
        VectorRouting(5, 4, 3, 6, num_iters=0)
    with pytest.raises(ValueError, match=r"vectors of shape \(\*b, 5, 4\); got \(2, 6, 4\)"):
        layer(torch.randn(2, 6, IN_POSE))
    with pytest.raises(ValueError, match=r"vectors of shape \(\*b, any, 4\); got \(2, 5, 3\)"):
        open_layer(torch.randn(2, CHILDREN, 3))
    with pytest.raises(ValueError, match=r"\(\*b, any, 4\); got \(2, 0, 4\)"):
        open_layer(torch.randn(2, 0, IN_POSE))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 4\); for children \(2, 5\) it is the same, or \(5,\)"):
        layer(vectors, torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"pair_mask has shape \(5, 2\).*3 parents it is \(2, 5, 3\), or \(5, 3\)"):
        layer(vectors, pair_mask=torch.ones(CHILDREN, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"pair_mask is of torch\.float32; expected a tensor of torch\.bool"):
        layer(vectors, pair_mask=torch.ones(CHILDREN, PARENTS))
    with pytest.raises(ValueError, match=r"VectorRouting takes a tensor of vectors .* got Capsules"):
        layer(tc.Capsules(vectors))
    with pytest.raises(ValueError, match=r"vectors are of torch\.int64; expected floating-point"):
        layer(vectors.long())
    with pytest.raises(ValueError, match="pair_mask is of list; expected a tensor"):
        layer(vectors, pair_mask=[[True] * PARENTS] * CHILDREN)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([True] * CHILDREN, r"mask is a tensor of true and false, or of shares .* got mask=\[True, True"),
        (torch.full((CHILDREN,), 1j), r"got one of torch\.complex64"),
        (torch.full((CHILDREN,), 1.5), r"shares from 0, not there, to 1; got numbers from 1\.5 to 1\.5"),
        (torch.tensor([1.0, 0.0, -0.1, 1.0, 1.0]), r"got numbers from -0\.1 to 1"),
        (torch.tensor([1.0, 0.0, torch.nan, 1.0, 1.0]), "got numbers from nan to nan"),
        (torch.tensor([1, 0, 2, 1, 1]), "got numbers from 0 to 2"),
    ],
    ids=["list", "complex", "large", "negative", "nan", "integer"],
)
def test_wrong_masks_are_quoted(mask: Any, words: str) -> None:
    vectors = torch.randn(2, CHILDREN, IN_POSE)
    parts: dict[str, Any] = {"vote": lambda x: x[:, :, None].expand(-1, -1, 2, -1), "predict": nn.Identity()}
    parts["compare"] = lambda x, seen: x @ seen.mT
    general = GeneralVectorRouting(lambda x: x.sum(-1), **parts, in_caps=CHILDREN, out_caps=2)
    for layer in (make(), make(None), general, tc.heads.VectorRoutingHead(IN_POSE, 2, caps=2)):
        with pytest.raises(ValueError, match=words):
            layer(vectors, mask)
    with pytest.raises(ValueError, match=words):
        combine_credit([torch.randn(2, CHILDREN, 3)], mask=mask)


def test_masks_of_whole_numbers_are_taken() -> None:
    layer, vectors, mask = make(None), torch.randn(2, CHILDREN, IN_POSE), torch.tensor([[1, 1, 1, 0, 0], [1] * 5])
    assert torch.equal(layer(vectors, mask), layer(vectors, mask.bool()))


@pytest.mark.parametrize("name", ["classes", "caps"])
def test_a_head_has_at_least_two_of_everything(name: str) -> None:
    sizes: dict[str, Any] = {"classes": 3, name: 1}
    with pytest.raises(ValueError, match=f"at least two; got {name}=1"):
        tc.heads.VectorRoutingHead(IN_POSE, **sizes)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_iters": 0}, "at least one iteration; got num_iters=0"),
        ({"presence": 1.0}, r"presence is a tensor of shape \(\*b, i\); got presence=1.0"),
        ({"beta_use": None}, r"beta_use is a tensor of shape \(\*b, i, j\) or \(i, j\); got beta_use=None"),
        ({"beta_use": torch.ones(7, 1)}, r"at least two; got beta_use of shape \(7, 1\)"),
        ({"beta_use": torch.ones(6, 3)}, r"beta_use has shape \(6, 3\); for presence of shape \(2, 7\) and 3 parents"),
        ({"beta_ignore": torch.ones(7, 2)}, r"beta_ignore has shape \(7, 2\).* it is \(2, 7, 3\), or \(7, 3\)"),
        ({"beta_ignore": torch.ones(4, 2, 7, 3)}, r"beta_ignore has shape \(4, 2, 7, 3\)"),
        ({"pairs": torch.ones(7, 2, dtype=torch.bool)}, r"pairs has shape \(7, 2\); for presence of shape \(2, 7\)"),
        ({"pairs": torch.ones(7, 3)}, r"pairs is of torch\.float32; expected torch\.bool"),
        ({"pairs": [[True]]}, r"pairs is a tensor of shape .* got pairs=\[\[True\]\]"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_the_function_refuses(changed: dict[str, Any], words: str) -> None:
    children, weight = torch.randn(2, 7, 4), torch.randn(3, 4)
    given: dict[str, Any] = {
        "presence": torch.ones(2, 7),
        "mix": lambda credit: credit.mT @ children * weight,
        "compare": lambda parents: children @ parents.mT,
        "beta_use": torch.ones(7, 3),
        "beta_ignore": torch.ones(2, 1, 3),
    }
    assert vector_routing(**given).credit.shape == (2, 7, 3)
    with pytest.raises(ValueError, match=words):
        vector_routing(**given | changed)


class Everything(nn.Module):
    """Both forms, with masks and credit."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.open = make(), make(None)
        vote = nn.Sequential(nn.Linear(IN_POSE, 6), nn.Unflatten(-1, (2, 3)))
        self.general = GeneralVectorRouting(
            nn.Linear(IN_POSE, 1), vote, nn.Linear(3, IN_POSE), lambda x, seen: x @ seen.mT, None, 2, in_pose=IN_POSE
        )

    def forward(self, vectors: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = torch.ones(CHILDREN, PARENTS, dtype=torch.bool).tril(1)
        first = self.open(vectors, mask, pair_mask=pairs, return_credit=True)
        return first.vectors, first.credit, self.fixed(vectors), self.general(vectors, mask)


def test_compiled_in_one_graph() -> None:
    both = Everything()
    vectors, mask = torch.randn(3, CHILDREN, IN_POSE), torch.rand(3, CHILDREN)
    compiled = torch.compile(both, fullgraph=True, backend="eager")
    for ours, wanted in zip(compiled(vectors, mask), both(vectors, mask), strict=True):
        assert_near(ours, wanted, SINGLE_VALUE)
    compiled(vectors, mask)[0].sum().backward()
    assert both.open.vote_weight.grad is not None


def test_exported_to_onnx_with_masks_and_credit(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    both = Everything().eval()
    vectors, mask = torch.randn(6, CHILDREN, IN_POSE), torch.rand(6, CHILDREN).round()
    mask[3] = 0.0
    tc.export.to_onnx(both, tmp_path / "both.onnx", (vectors[:2], mask[:2]), check=False)
    session = open_session((tmp_path / "both.onnx").read_bytes(), "both", threads=1)
    for batch in (1, 6):
        with torch.no_grad():
            expected = both(vectors[:batch], mask[:batch])
        found = run_session(session, {"input_1": vectors[:batch].numpy(), "input_2": mask[:batch].numpy()}, "both")
        for ours, wanted in zip(found, expected, strict=True):
            assert_near(torch.from_numpy(ours), wanted, SINGLE_VALUE)


def test_a_program_of_torch_export_takes_any_number_of_children() -> None:
    layer = make(None).eval()
    free = torch.export.Dim.DYNAMIC
    program = torch.export.export(layer, (torch.randn(2, 5, IN_POSE),), dynamic_shapes=({0: free, 1: free},))
    for shape in ((3, 9), (2, 2)):
        vectors = torch.randn(*shape, IN_POSE)
        assert_near(program.module()(vectors), layer(vectors), SINGLE_VALUE)
