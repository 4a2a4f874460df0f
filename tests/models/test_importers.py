"""Heinsen's published weights in our models give what his networks compute, written out here formula by formula."""

import math
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.models import importers

DATA = os.environ.get("TORCHCAPS_DATA")
FOLDER = Path(DATA or ".") / "heinsen2019"
needs_weights = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="set TORCHCAPS_DATA to a folder that has heinsen2019/*.pt, the author's weights"
)
State = dict[str, Tensor]


def read(name: str) -> State:
    path = FOLDER / f"{name}_pretrained_model_state_dict.pt"
    state = torch.load(path, weights_only=True, map_location="cpu")
    return {key: tensor.double() for key, tensor in state.items()}


def batch_norm(x: Tensor, state: State, key: str) -> Tensor:
    mean, variance = (state[f"{key}.running_{part}"][:, None, None] for part in ("mean", "var"))
    weight, bias = (state[f"{key}.{part}"][:, None, None] for part in ("weight", "bias"))
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def convolve(x: Tensor, state: State, key: str, stride: int) -> Tensor:
    """A convolution without padding, as a sum over the places of its kernel."""
    weight, bias = state[f"{key}.weight"], state[f"{key}.bias"]
    size = weight.shape[-1]
    height, width = ((side - size) // stride + 1 for side in x.shape[-2:])
    total = bias[:, None, None].expand(x.shape[0], -1, height, width)
    for row in range(size):
        for column in range(size):
            seen = x[..., row : row + stride * height : stride, column : column + stride * width : stride]
            total = total + torch.einsum("oc,bcyx->boyx", weight[:, :, row, column], seen)
    return total


def route(presence: Tensor, mu: Tensor, state: State, key: str) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 for one example: presence f(a_i) ``(i,)`` and poses ``(i, c, d)`` to scores, means and variances."""
    weight, bias, use, ignore = (state[f"{key}.{part}"] for part in ("W", "B", "beta_use", "beta_ign"))
    votes = torch.einsum("ijdh,icd->ijch", weight.expand(len(mu), -1, -1, -1), mu) + bias
    score = mean = variance = torch.empty(0)
    for iteration in range(3):
        if iteration == 0:
            shares = torch.full_like(votes[..., 0, 0], 1 / votes.shape[1])
        else:
            log_density = -((votes - mean) ** 2 / (2 * variance)).sum((-2, -1)) - variance.sqrt().log().sum((-2, -1))
            weighted = score.sigmoid().log() + log_density
            shares = (weighted - weighted.logsumexp(-1, keepdim=True)).exp()
        used = presence[:, None] * shares
        score = (use * used).sum(0) - (ignore * (presence[:, None] - used)).sum(0)
        mass = used.sum(0)[:, None, None] + 1e-5
        mean = (used[..., None, None] * votes).sum(0) / mass
        variance = (used[..., None, None] * (votes - mean) ** 2).sum(0) / mass + 1e-5
    return score, mean, variance


def two_layers(presence: Tensor, mu: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
    score, mean, _ = route(presence, mu, state, "routings.0")
    return route(score.sigmoid(), mean, state, "routings.1")


def literal_vision(images: Tensor, state: State) -> list[tuple[Tensor, ...]]:
    batch, _, height, width = images.shape
    rows = torch.linspace(-1, 1, height, dtype=torch.float64)[:, None].expand(batch, 1, height, width)
    columns = torch.linspace(-1, 1, width, dtype=torch.float64).expand(batch, 1, height, width)
    x = torch.cat([images, rows, columns], 1)
    for index in range(6):
        x = convolve(batch_norm(x, state, f"convolve.{3 * index}"), state, f"convolve.{3 * index + 1}", 1 + index % 2)
        x = x * x.sigmoid()
    scores = convolve(batch_norm(x, state, "compute_a.0"), state, "compute_a.1", 1)
    poses = convolve(batch_norm(x, state, "compute_mu.0"), state, "compute_mu.1", 1)
    found = []
    for one_score, one_pose in zip(scores, poses, strict=True):
        children = one_pose.unflatten(0, (64, 4, 4)).permute(0, 3, 4, 1, 2).reshape(-1, 4, 4)  # (part, row, column)
        found.append(two_layers(one_score.flatten().sigmoid(), children, state))
    return found


def literal_sentence(states: Tensor, mask: Tensor, state: State) -> list[tuple[Tensor, ...]]:
    x = (states + state["depth_emb"]) @ state["detect_parts.0.weight"].T + state["detect_parts.0.bias"]
    x = x * x.sigmoid()
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    x = x * state["detect_parts.2.weight"] + state["detect_parts.2.bias"]
    found = []
    for one, there in zip(x, mask, strict=True):
        presence = there[:, None].expand(-1, x.shape[2]).double().flatten()
        found.append(two_layers(presence, one.reshape(-1, 1, 64), state))
    return found


def assert_agrees(prediction: tc.models.Prediction, literal: list[tuple[Tensor, ...]], tolerance: float) -> None:
    scores, means, variances = (torch.stack(part).flatten(2) if part[0].ndim > 1 else torch.stack(part)
                                for part in zip(*literal, strict=True))  # fmt: skip
    capsules = prediction.capsules
    assert capsules is not None
    assert capsules.variance is not None
    for ours, his in ((prediction.logits, scores), (capsules.pose, means), (capsules.variance, variances)):
        torch.testing.assert_close(ours.double(), his, rtol=tolerance, atol=tolerance * his.abs().max().item())


@needs_weights
@pytest.mark.parametrize("size", [(40, 37), (48, 48)])
def test_smallnorb_network(size: tuple[int, int], tmp_path: Path) -> None:
    model = importers.heinsen2019(FOLDER / "smallNORB_pretrained_model_state_dict.pt").eval()
    images = torch.rand(2, 2, *size, generator=torch.Generator().manual_seed(0))
    literal = literal_vision(images.double(), read("smallNORB"))
    assert_agrees(model.double()(images.double()), literal, 1e-9)
    assert_agrees(model.float()(images), literal, 3e-5)
    tc.models.save(model, tmp_path / "his.safetensors")
    again = tc.models.load(tmp_path / "his.safetensors").eval()
    assert torch.equal(again(images).logits, model(images).logits)


@needs_weights
@pytest.mark.parametrize(("name", "classes"), [("SST5R", 5), ("SST2R", 2)])
def test_sentence_networks(name: str, classes: int) -> None:
    model = importers.heinsen2019(FOLDER / f"{name}_pretrained_model_state_dict.pt").eval()
    states = torch.randn(2, 5, 37, 1280, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    literal = literal_sentence(states.double(), mask, read(name))
    found = model.double()(states.double(), mask)
    assert found.logits.shape == (2, classes)
    assert_agrees(found, literal, 1e-9)
    assert_agrees(model.float()(states, mask), literal, 3e-5)
    # padding counts for nothing: the shorter sentence alone
    alone = model.double()(states[1:, :3].double())
    torch.testing.assert_close(alone.logits, found.logits[1:], rtol=1e-9, atol=1e-9)


def test_other_files_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"a tensor 'fc\.weight', which none of Heinsen's"):
        importers.heinsen2019_from_state({"fc.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"no routings\.1\.W"):
        importers.heinsen2019_from_state({"routings.0.W": torch.zeros(1, 4, 2, 2)})


def test_the_logit_of_a_mask_is_infinite() -> None:
    net = tc.models.create("heinsen2019_sst5", depth=2, embedding=3, features=4, caps=3)
    states = torch.randn(2, 3, 2, 3)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    score = net.get_submodule("primary")(states, mask).score
    assert score[0].tolist() == [math.inf] * 4 + [-math.inf] * 2
    loss = net(states, mask).logits.sum()
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
