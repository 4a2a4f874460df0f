"""On an accelerator every operation is a launch: how many a training step has, counted on the ``meta`` device.

The table of docs/fast.md has the counts. A number that rises here is time on every GPU; one that falls belongs in the
table.
"""

import re
from collections.abc import Callable
from pathlib import Path as FilePath

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torchcaps as tc
from tests.models.reduced import inputs, model
from tests.support import converge_soon
from torchcaps.votes import grid, kinds
from torchcaps.votes.paths import Path, force_path

PAGE = FilePath(tc.__file__).parents[1] / "docs" / "fast.md"
DENSE, SHARED, CONVOLUTION = (32, 64, 8), (32, 64, 8), (8, 9, 9, 8, 16)
LAYERS: dict[str, tuple[Callable[[str], nn.Module], tuple[int, ...], Path | None]] = {
    "a weight for each pair": (lambda routing: tc.DenseCapsules(64, 8, 10, 16, routing), DENSE, None),
    "the same in blocks": (lambda routing: tc.DenseCapsules(64, 8, 10, 16, routing), DENSE, Path.BLOCKS),
    "shared weights": (lambda routing: tc.DenseCapsules(None, 8, 10, 16, routing), SHARED, None),
    "convolution": (lambda routing: tc.ConvCapsules(8, (4, 4), 8, (4, 4), 3, 2, routing), CONVOLUTION, None),
}
"""The columns of the table: a layer, its poses, and the path if it is not the one of its size."""


def read_table() -> dict[str, dict[str, int]]:
    """The launches that the page states, by routing and kind of layer."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in re.split(r"^\| launches ", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n\n")[0].splitlines()
    ]
    columns, _, *lines = rows
    return {title: dict(zip(columns, map(int, counts), strict=True)) for title, *counts in lines}


class CountedLaunches(TorchDispatchMode):
    """Counts the operations that an accelerator would launch: all with a tensor on the device but views and the making
    of empty tensors."""

    launches = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        view = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
        there = any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in tree_leaves((args, kwargs, found)))
        empty = name in ("empty", "new_empty", "empty_like", "empty_strided", "detach")
        self.launches += there and not view and not empty
        return found


@pytest.fixture(autouse=True)
def keep_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a convolution are made once for all steps, though someone looks through the operations here."""
    monkeypatch.setattr(kinds, "find_tables", lambda at, window, like: grid._kept_tables(at, window, like.device))


def count_launches(step: Callable[[], object], path: Path | None = None) -> int:
    """Launches of the second of two steps: the first makes what is kept."""
    with force_path(path):
        step()
        with CountedLaunches() as counted:
            step()
    return counted.launches


def make_step(layer: nn.Module, shape: tuple[int, ...]) -> Callable[[], object]:
    layer = layer.to("meta")
    converge_soon(layer)  # all of its iterations are made where nobody looks
    pose = torch.empty(shape, device="meta", requires_grad=True)
    score = torch.empty(shape[:-1], device="meta")

    def step() -> None:
        pose.grad = None
        layer.zero_grad()
        found = layer(tc.Capsules(pose, score))
        torch.stack([part.sum() for part in found if part is not None]).sum().backward()

    return step


def test_the_table_has_all_routings_and_layers() -> None:
    table = read_table()
    assert list(table) == [tc.routing.ROUTINGS[name].title for name in tc.routing.ROUTINGS]
    assert all(list(row) == list(LAYERS) for row in table.values())


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
def test_launches_of_a_training_step(routing: str, kind: str) -> None:
    make, shape, path = LAYERS[kind]
    stated = read_table()[tc.routing.ROUTINGS[routing].title]
    assert count_launches(make_step(make(routing), shape), path) == stated[kind]
    assert stated["a weight for each pair"] <= stated["the same in blocks"]


def test_launches_of_a_step_of_a_model() -> None:
    """Forward, loss, backward and optimizer, of CapsNet at a reduced size."""
    net = model("sabour2017_mnist").to("meta")
    images, loss = inputs(net, 2).to("meta"), tc.losses.MarginLoss()
    target = torch.zeros(2, dtype=torch.long, device="meta")
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)  # as is the default on GPUs

    def step() -> None:
        optimizer.zero_grad()
        loss(net(images).logits, target).backward()
        optimizer.step()

    assert count_launches(step) <= 203
