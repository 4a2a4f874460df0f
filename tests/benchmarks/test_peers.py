"""Published repositories are measured from a folder of clones: a stand-in here, of the same interface."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import peers
from benchmarks.__main__ import main
from benchmarks.cases import OURS

SIZES = (2, 6, 3, 4, 5)
STAND_IN = """
import torch
from torch import nn

class CapsuleLayer(nn.Module):
    def __init__(self, num_capsules, num_route_nodes, in_channels, out_channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_capsules, num_route_nodes, in_channels, out_channels))

    def forward(self, x):
        return {result}
"""
RIGHT = "(x[None, :, :, None, :] @ self.weight[:, None]).mean(2, keepdim=True)"
PEER = peers.PEERS[0]


def clone(folder: Path, result: str = RIGHT) -> Path:
    path = folder / PEER.folder / PEER.file
    path.parent.mkdir(parents=True)
    path.write_text(STAND_IN.format(result=result))
    return folder


def test_a_clone_is_measured_from_its_folder(tmp_path: Path) -> None:
    case = peers.make_case(PEER, clone(tmp_path), SIZES)
    assert list(case.contenders) == [OURS, "gram-ai/capsule-networks"]
    for make in case.contenders.values():
        found = make()()
        assert isinstance(found, tuple)
        assert found[0].shape == (2, 6, 3)
        assert all(torch.isfinite(part).all() for part in found)


@pytest.mark.parametrize(
    ("result", "message"),
    [("x", "another version"), ("x.cuda_or_else()", "AttributeError"), ("missing(x)", "NameError")],
)
def test_a_clone_of_another_kind_is_left_out(result: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(peers.UnusablePeerError, match=message):
        peers.load_layer(PEER, clone(tmp_path, result), SIZES)


def test_missing_clones_and_folders_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, problems = peers.find_cases(tmp_path)
    assert not found
    assert all(
        f"https://github.com/{peer.repository}" in text for peer, text in zip(peers.PEERS, problems, strict=True)
    )
    for words, message in ((["peers"], "--folder"), (["peers", "--folder", str(tmp_path / "no")], "no folder")):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        assert main() == 2
        assert message in capsys.readouterr().out.replace("\n", " ")
