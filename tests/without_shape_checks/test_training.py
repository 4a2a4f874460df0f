"""Training with a compiler, which does not bear the checking of shapes."""

from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest
import torch

from tests.lab.training import tiny
from tests.support import THOROUGH
from torchcaps.lab.training import train


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # inside torch's own compiler
def test_a_compiled_network_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not THOROUGH:  # C++ compilers take most of a minute; test_transforms.py compiles a layer to machine code
        monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="aot_eager"))
    recipe = replace(tiny.recipe(), max_steps=2)
    plain, compiled = (tmp_path / name for name in ("plain", "compiled"))
    train(recipe, plain)
    train(replace(recipe, compile=True), compiled)
    one, other = tiny.weights(plain), tiny.weights(compiled)
    assert one.keys() == other.keys(), "a compiled network is saved under its own names"
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-4, atol=1e-5)
