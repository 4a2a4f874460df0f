"""Published repositories are measured from a folder of clones: stand-ins here, with the same interfaces."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import peers
from benchmarks.__main__ import main
from benchmarks.cases import OURS
from benchmarks.peer_layers import LayerSizes, Peer

DENSE, MATRIX, CONV = LayerSizes(2, 6, 3, 4, 5), LayerSizes(2, 6, 4, 3, 4), LayerSizes(2, 2, 4, 3, 4, grid=5)
SIZES = {"dynamic": DENSE, "vectors": DENSE, "heinsen": MATRIX}
HEAD = """
import warnings
import torch
from torch import nn

class {kind}(nn.Module):
"""
# As a layer that asks for CUDA, warns, and uses what its script imports where it is run.
GRAM = """
    def __init__(self, num_capsules, num_route_nodes, in_channels, out_channels, kernel_size=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_capsules, num_route_nodes, in_channels, out_channels))

    def forward(self, x):
        warnings.warn("an old way", DeprecationWarning)
        found = (x[None, :, :, None, :] @ self.weight[:, None]).mean(2, keepdim=True)
        return found + Variable(torch.zeros(1)).cuda()
"""
READABLE = """
    def __init__(self, in_caps, in_hid, out_caps, out_hid):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_caps, in_hid, out_caps, out_hid))

    def forward(self, input_capsules, routing_iterations):
        return torch.einsum("bid,idjh->bjh", input_capsules, self.weight) / routing_iterations
"""
MATRICES = """
    def __init__(self, n_inp, n_out, d_cov, d_inp, d_out, n_iters=3):
        super().__init__()
        assert n_inp == -1
        self.weight = nn.Parameter(torch.randn(n_out, d_inp, d_out))
        self.bias = nn.Parameter(torch.zeros(n_out, d_cov, d_out))

    def forward(self, a_inp, mu_inp):
        mean = torch.einsum("bi,bicd,jdh->bjch", a_inp.sigmoid(), mu_inp, self.weight) + self.bias
        return mean.sum((-2, -1)), mean, mean.square()
"""
VECTORS = """
    def __init__(self, n_inp, n_out, d_inp, d_out, n_iters=2):
        super().__init__()
        assert n_inp == -1
        self.weight = nn.Parameter(torch.randn(n_out, d_inp, d_out))

    def forward(self, x_inp):
        return torch.einsum("bid,jdh->bjh", x_inp, self.weight)
"""
EM = """
    def __init__(self, B=32, C=32, K=3, P=4, stride=2, iters=3):
        super().__init__()
        self.stride, self.pad = stride, torch.cuda.FloatTensor(1).fill_(0.0)
        self.weight = nn.Parameter(torch.randn(C * (P * P + 1), B * (P * P + 1), K, K))

    def forward(self, x):
        found = nn.functional.conv2d(x.permute(0, 3, 1, 2), self.weight, stride=self.stride)
        return found.permute(0, 2, 3, 1) + self.pad
"""
EM_IMAGES = """
    def __init__(self, A, B, caps_size, kernel_size=3, stride=1, padding=1, iters=3):
        super().__init__()
        self.presence = nn.Conv2d(A, B, kernel_size, stride, padding)
        self.pose = nn.Conv2d(A * caps_size, B * caps_size, kernel_size, stride, padding)

    def forward(self, a_in, pose):
        return self.presence(a_in), self.pose(pose)
"""
INVERTED = """
    def __init__(
        self, in_n_capsules, in_d_capsules, out_n_capsules, out_d_capsules, kernel_size, stride, matrix_pose, dp
    ):
        super().__init__()
        assert matrix_pose and dp == 0.0
        self.kernel_size, self.stride = kernel_size, stride
        self.w = nn.Parameter(torch.randn(in_n_capsules, in_d_capsules, out_n_capsules, out_d_capsules))

    def forward(self, input, num_iter, next_capsule_value=None):
        fields = input.unfold(2, self.kernel_size, self.stride).unfold(3, self.kernel_size, self.stride).sum((-2, -1))
        return torch.einsum("bnhwa,namd->bmhwd", fields, self.w) * next_capsule_value
"""
SELF = """
    def __init__(self, A, B, C, D, kernel_size=3, stride=1, padding=1, pose_out=False):
        super().__init__()
        assert pose_out
        self.presence = nn.Conv2d(A, B, kernel_size, stride, padding)
        self.pose = nn.Conv2d(A * C, B * D, kernel_size, stride, padding)

    def forward(self, a, pose):
        return self.presence(a), self.pose(pose)
"""
STAND_INS = {
    "dynamic-gram-ai": GRAM,
    "dynamic-arogozhnikov": READABLE,
    "heinsen-glassroom": MATRICES,
    "vectors-glassroom": VECTORS,
    "em-yl-1993": EM,
    "em-coder3000": EM_IMAGES,
    "inverted-attention-apple": INVERTED,
    "self-routing-coder3000": SELF,
}
PEERS = {peer.name: peer for peer in peers.PEERS}
GRAM_AI = PEERS["dynamic-gram-ai"]


def clone(folder: Path, peer: Peer, text: str) -> Path:
    path = folder / peer.folder / peer.file
    path.parent.mkdir(parents=True)
    path.write_text(HEAD.format(kind=peer.kind) + text)
    return folder


@pytest.mark.parametrize("name", PEERS)
def test_a_clone_is_measured_from_its_folder(name: str, tmp_path: Path) -> None:
    peer, cuda = PEERS[name], torch.Tensor.cuda
    sizes = SIZES.get(peer.task.name, CONV)
    case = peers.make_case(peer, clone(tmp_path, peer, STAND_INS[name]), sizes)
    assert list(case.contenders) == [OURS, peer.repository]
    assert sizes.describe() in case.title
    for make in case.contenders.values():
        found = make()()
        assert isinstance(found, tuple)
        assert found[0].shape[0] == sizes.examples
        assert all(torch.isfinite(part).all() for part in found)
    assert torch.Tensor.cuda is cuda


def test_modules_of_a_clone_are_its_own(tmp_path: Path) -> None:
    text = (
        "from utils import scale\n"
        + HEAD
        + VECTORS.replace("super().__init__()", "super().__init__(); self.scale = scale")
    )
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "utils.py").write_text(f"scale = {number}.0")
        (folder / "layers.py").write_text(text.format(kind="Layer"))
        assert peers.import_file(folder / "layers.py").Layer(-1, 3, 2, 2).scale == number
    assert "utils" not in sys.modules


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("x.transpose(0, 1)[:, :, None, None]", r"its capsules are \(2, 6, 3\), not \(2, 4, 5\) \(commit 4e16285 runs"),
        ("x", "EinopsError: .* Received 3-dim tensor"),
        ("x.cuda_or_else()", "AttributeError.*cuda_or_else"),
        ("missing(x)", "NameError.*missing"),
        ("torch.zeros(4, 2, 1, 1, 5)", "RuntimeError.*does not require grad"),
    ],
)
def test_a_clone_of_another_kind_is_left_out(result: str, message: str, tmp_path: Path) -> None:
    text = GRAM.split("        warnings")[0] + f"        return {result}\n"
    with pytest.raises(peers.UnusablePeerError, match=message):
        peers.load_layer(GRAM_AI, clone(tmp_path, GRAM_AI, text), DENSE)


def test_a_package_that_a_clone_needs_is_named(tmp_path: Path) -> None:
    clone(tmp_path, GRAM_AI, GRAM + "\nimport no_such_package\n")
    with pytest.raises(peers.UnusablePeerError, match="needs no_such_package: pip install no_such_package"):
        peers.load_layer(GRAM_AI, tmp_path, DENSE)


def test_missing_clones_and_folders_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, problems = peers.find_cases(tmp_path)
    assert not found
    assert all(
        f"{peer.name}: no {tmp_path}" in text and f"https://github.com/{peer.repository}" in text
        for peer, text in zip(peers.PEERS, problems, strict=True)
    )
    for words, message in ((["peers"], "--folder"), (["peers", "--folder", str(tmp_path / "no")], "no folder")):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        assert main() == 2
        assert message in capsys.readouterr().out.replace("\n", " ")
