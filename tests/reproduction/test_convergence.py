"""The study of convergence: other numbers of iterations in testing than in training."""

from pathlib import Path

import pytest
import torch
from rich.console import Console

import torchcaps as tc
from reproduction import Campaign, Item, Point, RecordPaths, Study
from reproduction.convergence import _route
from torchcaps.files import read_json


def test_a_layer_makes_as_many_iterations_as_it_is_told():
    torch.manual_seed(0)
    children = tc.Capsules(torch.randn(3, 20, 8))
    layers = {name: tc.DenseCapsules(20, 8, 4, 6, name) for name in ("dynamic", "fixed_point")}
    layers["fixed_point"].load_state_dict(layers["dynamic"].state_dict())
    with torch.no_grad():
        for layer in layers.values():
            layer.weight.mul_(6.0)
        poses = {name: [_route(layer, children, n).pose for n in range(1, 9)] for name, layer in layers.items()}
        converged = layers["fixed_point"](children).pose
    for first in range(2):  # both begin with equal couplings, and the second iteration is the same
        torch.testing.assert_close(poses["dynamic"][first], poses["fixed_point"][first])
    assert not torch.allclose(poses["dynamic"][2], poses["fixed_point"][2])
    far = [(pose - converged).norm().item() for pose in poses["fixed_point"]]
    assert far == sorted(far, reverse=True)
    assert layers["fixed_point"].routing.max_iters == 100  # as it was
    with pytest.raises(ValueError, match="FMAgreement has neither a number of iterations nor a limit"):
        _route(tc.DenseCapsules(20, 8, 4, 6, "fm"), children, 2)


def test_the_study_counts_and_draws(tmp_path: Path):
    names = ("dynamic", "fixed_point")
    items = tuple(Item(name, "comparison/mnist-sample", 1.0, ("--model.routing", name), seeds=(0,)) for name in names)
    point = Point("two", "Two", "", items, studies=(Study("two", "Two", "convergence", names, every_seed=True),))
    places = RecordPaths(tmp_path / "results" / "runs", tmp_path / "runs", tmp_path / "figures")
    outcome = Campaign((point,), "smoke", places, Console(quiet=True), threads=1).run()
    assert (outcome.done, outcome.failed) == (3, [])
    record = read_json(places.study(point.studies[0], "smoke"))
    assert [row[0] for row in record["rows"]] == list(names)
    assert all(len(row) == len(record["columns"]) == 7 for row in record["rows"])
    (one,) = record["numbers"]["fixed_point"]
    assert one["total"] == 16
    assert len(one["correct"]) == 3
    assert one["change"][0] > one["change"][1] > 0
    assert one["memory"] > 0
    assert (places.figures / record["figures"][0]).is_file()
