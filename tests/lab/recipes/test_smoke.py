"""Every recipe takes two steps at its smallest scale, on what ships with the package, and its weights move."""

from pathlib import Path

import pytest
import torch

import torchcaps.data as data
import torchcaps.lab.recipes as recipes
from torchcaps.lab.recipes import AnyRecipe
from torchcaps.lab.training import TrainOptions, train
from torchcaps.routing import ROUTINGS

READS_TEXT = [name for name in recipes.list() if hasattr(recipes.get(name).model, "embedding")]


def weights_moved(recipe: AnyRecipe, model: torch.nn.Module) -> bool:
    before = recipes.build_model(recipe).state_dict()
    moved = [not torch.equal(before[name], tensor) for name, tensor in model.named_parameters()]
    return sum(moved) > len(moved) / 2


@pytest.mark.parametrize("name", [name for name in recipes.list() if name not in READS_TEXT])
def test_two_steps(name: str, tmp_path: Path):
    recipe = recipes.get(name, "smoke")
    run = train(recipe, tmp_path / "run", scale="smoke", options=TrainOptions(threads=1))
    record = run.record()
    assert record is not None
    assert record["steps"] == 2
    assert 0 <= record["metrics"]["accuracy"] <= 1
    assert weights_moved(recipe, run.model())


@pytest.mark.parametrize("name", READS_TEXT)
def test_two_steps_on_hidden_states(name: str):
    """Language models do not ship: hidden states are made up."""
    recipe = recipes.get(name, "smoke")
    model, loss = recipes.build_model(recipe), recipes.build_loss(recipe)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        draw = torch.Generator().manual_seed(step)
        states = torch.randn(recipe.batch_size, 5, recipe.model.depth, recipe.model.embedding, generator=draw)
        value = loss(model(states).logits, torch.arange(recipe.batch_size) % recipe.model.classes, step)
        assert value.isfinite()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert weights_moved(recipe, model)


@pytest.mark.parametrize("name", [name for name in recipes.list() if name not in READS_TEXT])
def test_the_smallest_scale_needs_no_data_of_others(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    recipe = recipes.get(name, "smoke")
    assert recipes.fit_to_data(recipe) == recipe
    if recipe.data.test:
        data.load(recipe.data.test, "test")


def test_the_seed_decides_the_weights_and_nothing_else_does():
    recipe = recipes.get("quickstart", "smoke")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one = recipes.build_model(recipe)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    two = recipes.build_model(recipe)
    three = recipes.build_model(recipes.change(recipe, {"seed": 1}))
    weights = [next(model.parameters()) for model in (one, two, three)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.filterwarnings("ignore:fixed-point routing:RuntimeWarning")  # two steps from random weights
@pytest.mark.parametrize("routing", ROUTINGS)
def test_own_images_take_any_routing(routing: str, tmp_path: Path):
    recipe = recipes.configure("own/images", "smoke", ["--model.routing", routing])
    run = train(recipe, tmp_path / "run", scale="smoke", options=TrainOptions(threads=1))
    assert weights_moved(recipe, run.model())
