"""Published repositories beside ours: training steps of their layers, by their own code.

``make bench PEERS=folder`` (or ``python -m benchmarks peers --folder folder``) measures every clone that is in the
folder. Their code is imported from there and from nowhere else; none of it is part of this repository. A clone that is
missing, or that is of another version than the one described in ``peer_layers``, is named and left out.
"""

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.cases import OURS, Case, Target, Work
from benchmarks.peer_layers import PEERS, LayerSizes, Peer
from benchmarks.runner import run_in_fresh_process


class UnusablePeerError(ValueError):
    """A clone that cannot be measured, with the reason in one line."""


@contextmanager
def _published_code() -> Iterator[None]:
    """For as long as somebody else's code runs: it stays on the CPU, also where it asks for CUDA by name, and its
    warnings are its own."""
    with (
        patch.object(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor),
        patch.object(torch.cuda, "FloatTensor", torch.FloatTensor),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def import_file(path: Path) -> ModuleType:
    """The module of one file, which finds those beside it as a script does."""
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    try:
        with patch.object(sys, "path", [str(path.parent), *sys.path]):
            spec.loader.exec_module(module)
    finally:
        for name in set(sys.modules) - before:  # another clone may have modules of the same names
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == path.parent:
                del sys.modules[name]
    # Some scripts import it where they are run, and their layers use it.
    vars(module).setdefault("Variable", torch.autograd.Variable)
    return module


def load_layer(peer: Peer, folder: Path, sizes: LayerSizes | None = None) -> nn.Module:
    """The peer's layer, checked by a training step on two examples.

    Raises:
        UnusablePeerError: where there is no clone, or another than the one described.
    """
    path = folder / peer.folder / peer.file
    if not path.is_file():
        raise UnusablePeerError(
            f"no {path}; clone https://github.com/{peer.repository} into {folder} (commit {peer.commit} runs)"
        )
    two = (sizes or peer.task.sizes)._replace(examples=2)
    try:
        with _published_code():
            layer = peer.make(getattr(import_file(path), peer.kind), two)
            shape = tuple(peer.read(layer(*peer.arguments(two)), two).shape)
        if shape != two.parent_shape:
            raise ValueError(f"its capsules are {shape}, not {two.parent_shape}")
        _their_step(peer, layer, two)()
    except ModuleNotFoundError as error:
        raise UnusablePeerError(f"{path} needs {error.name}: pip install {error.name}") from error
    except Exception as error:  # whatever somebody else's code may raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnusablePeerError(f"{path} cannot be measured: {reason} (commit {peer.commit} runs)") from error
    return layer


def _total(found: object) -> Tensor:
    """The sum of all numbers of a result."""
    parts = found if isinstance(found, tuple) else (found,)
    return sum((part.sum() for part in parts if isinstance(part, Tensor)), torch.zeros(()))


def _their_step(peer: Peer, layer: nn.Module, sizes: LayerSizes) -> Work:
    arguments = peer.arguments(sizes)
    inputs = [*(each for each in arguments if isinstance(each, Tensor)), *layer.parameters()]

    def work() -> object:
        with _published_code():
            return torch.autograd.grad(_total(layer(*arguments)), inputs)

    return work


def make_case(peer: Peer, folder: Path, sizes: LayerSizes | None = None) -> Case:
    """A training step of the peer's layer and of ours, of the same sizes."""
    task, sizes = peer.task, sizes or peer.task.sizes

    def ours() -> Work:
        torch.manual_seed(0)
        inputs, forward = task.ours(sizes)
        return lambda: torch.autograd.grad(_total(forward()), inputs)

    def theirs() -> Work:
        torch.manual_seed(0)
        return _their_step(peer, load_layer(peer, folder, sizes), sizes)

    title = f"{task.title}: {sizes.describe()}"
    return Case(title, {OURS: ours, peer.repository: theirs}, (Target(peer.repository, 1.0),))


def find_cases(folder: Path) -> tuple[dict[str, Callable[[], Case]], list[str]]:
    """Cases of all clones that can be measured, and why the others cannot.

    Raises:
        ValueError: where there is no such folder.
    """
    if not folder.is_dir():
        clones = ", ".join(dict.fromkeys(peer.folder for peer in PEERS))
        raise ValueError(f"no folder {folder} of clones; name one that holds {clones}")
    # In a process of its own: the one that measures must not have run an operation.
    problems = {peer.name: run_in_fresh_process(_explain, peer, folder) for peer in PEERS}
    usable: dict[str, Callable[[], Case]] = {
        peer.name: partial(make_case, peer, folder) for peer in PEERS if not problems[peer.name]
    }
    return usable, [f"{name}: {problem}" for name, problem in problems.items() if problem]


def _explain(peer: Peer, folder: Path) -> str:
    """Why a clone cannot be measured; empty where it can."""
    try:
        load_layer(peer, folder)
    except UnusablePeerError as error:
        return str(error)
    return ""
