"""Published repositories beside ours: dynamic routing of MNIST's digit capsules by their own code.

``make bench PEERS=folder`` (or ``python -m benchmarks peers --folder folder``) measures every clone that is in the
folder. Their code is imported from there and from nowhere else; none of it is part of this repository. A clone that is
missing, or that is of another version than the one described here, is named and left out.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import OURS, Case, Target, Work
from benchmarks.runner import run_in_fresh_process
from torchcaps import routing
from torchcaps.votes import dense_votes

SIZES = (128, 1152, 8, 10, 16)  # examples, children, their pose, parents, their pose


@dataclass(frozen=True)
class Peer:
    """A layer of a published repository: where it is, and how it is made and read."""

    repository: str
    file: str
    name: str
    make: Callable[[Any, int, int, int, int], nn.Module]  # of children, their pose, parents, their pose
    read: Callable[[Tensor], Tensor]  # its output as (examples, parents, pose)

    @property
    def folder(self) -> str:
        return self.repository.split("/")[1]


PEERS = (
    Peer(
        "gram-ai/capsule-networks",
        "capsule_network.py",
        "CapsuleLayer",
        lambda kind, i, d, j, h: kind(num_capsules=j, num_route_nodes=i, in_channels=d, out_channels=h),
        lambda found: found.squeeze(-2).squeeze(-2).transpose(0, 1),
    ),
    Peer(
        "arogozhnikov/readable_capsnet",
        "readable_models/capsnet.py",
        "Capsule2Capsule",
        lambda kind, i, d, j, h: kind(in_caps=i, in_hid=d, out_caps=j, out_hid=h),
        lambda found: found,
    ),
)


class UnusablePeerError(ValueError):
    """A clone that cannot be measured, with the reason in one line."""


def load_layer(peer: Peer, folder: Path, sizes: tuple[int, int, int, int, int] = SIZES) -> nn.Module:
    """The peer's layer, checked on two examples.

    Raises:
        UnusablePeerError: where there is no clone, or another than the one described.
    """
    path = folder / peer.folder / peer.file
    if not path.is_file():
        raise UnusablePeerError(f"no {path}; clone https://github.com/{peer.repository} into {folder}")
    _, children, child_pose, parents, parent_pose = sizes
    try:
        spec = importlib.util.spec_from_file_location(f"peer_{peer.folder.replace('-', '_')}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        layer = peer.make(getattr(module, peer.name), children, child_pose, parents, parent_pose)
        found = peer.read(layer(torch.randn(2, children, child_pose) * 0.3))
    except Exception as error:  # whatever somebody else's code may raise
        raise UnusablePeerError(f"{path} cannot be measured: {type(error).__name__}: {error}") from error
    if found.shape != (2, parents, parent_pose):
        raise UnusablePeerError(
            f"{path} is of another version: its capsules are {tuple(found.shape)}, not {(2, parents, parent_pose)}"
        )
    return layer


def _step(inputs: list[Tensor], forward: Callable[[], Tensor]) -> Work:
    return lambda: torch.autograd.grad(forward().sum(), inputs)


def make_case(peer: Peer, folder: Path, sizes: tuple[int, int, int, int, int] = SIZES) -> Case:
    """A training step of the peer's layer and of ours, of the same sizes."""
    examples, children, child_pose, parents, parent_pose = sizes

    def poses() -> Tensor:
        torch.manual_seed(0)
        return (torch.randn(examples, children, child_pose) * 0.3).requires_grad_()

    def ours() -> Work:
        pose, weight = poses(), (torch.randn(children, parents, child_pose, parent_pose) * 0.1).requires_grad_()
        return _step([pose, weight], lambda: routing.dynamic_routing(dense_votes(pose, weight)).pose)

    def theirs() -> Work:
        pose, layer = poses(), load_layer(peer, folder, sizes)
        return _step([pose, *layer.parameters()], lambda: layer(pose))

    title = f"dynamic: {examples} × {children:,} children of {child_pose} → {parents} of {parent_pose}, 3 iterations"
    return Case(title, {OURS: ours, peer.repository: theirs}, (Target(peer.repository, 1.0),))


def find_cases(folder: Path) -> tuple[dict[str, Callable[[], Case]], list[str]]:
    """Cases of all clones that can be measured, and why the others cannot.

    Raises:
        ValueError: where there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"no folder {folder} of clones; name one that holds {', '.join(p.folder for p in PEERS)}")
    # In a process of its own: the one that measures must not have run an operation.
    problems = {peer: run_in_fresh_process(_explain, peer, folder) for peer in PEERS}
    usable = {peer.repository: _maker(peer, folder) for peer, problem in problems.items() if not problem}
    return usable, [problem for problem in problems.values() if problem]


def _explain(peer: Peer, folder: Path) -> str:
    """Why a clone cannot be measured; empty where it can."""
    try:
        load_layer(peer, folder)
    except UnusablePeerError as error:
        return str(error)
    return ""


def _maker(peer: Peer, folder: Path) -> Callable[[], Case]:
    return lambda: make_case(peer, folder)
