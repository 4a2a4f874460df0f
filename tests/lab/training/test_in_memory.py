"""Training in memory is the training of a run folder: the same bits, without the files."""

from typing import Any

import pytest
import torch

from tests.lab.training import tiny
from torchcaps.lab.recipes import AnyRecipe, Data, Optimizer
from torchcaps.lab.training import DivergedError, train
from torchcaps.lab.training.examples import RecipeData, Split
from torchcaps.lab.training.in_memory import train_in_memory


def load(recipe: AnyRecipe, *splits: Split) -> dict[Split, Any]:
    return {split: RecipeData(recipe).examples(split) for split in splits}


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "epochs": 4.0, "patience": 1}])
def test_weights_and_metrics_are_those_of_a_run_folder(tmp_path, changes):
    recipe = tiny.recipe(**changes)
    train(recipe, tmp_path / "run")
    before = torch.random.get_rng_state()
    found = train_in_memory(recipe, load(recipe, "train", "val"))
    assert torch.equal(torch.random.get_rng_state(), before), "the global random state stays as it was"
    assert tiny.same_bits(found.model.state_dict(), tiny.weights(tmp_path / "run"))
    lines = [{key: value for key, value in line.items() if key not in tiny.TIMES} for line in found.metrics]
    assert lines == [line for line in tiny.untimed(tmp_path / "run") if line["kind"] != "test"]
    assert not found.model.training


def test_going_on_changes_weights_from_where_they_were():
    recipe = tiny.recipe(data=Data("mnist_sample", limit=45))
    datasets = load(recipe, "train")
    first = train_in_memory(recipe, datasets)
    second = train_in_memory(recipe, datasets, start=first.state)
    still = tiny.recipe(data=recipe.data, optimizer=Optimizer("adam", lr=0.0), schedule=tiny.Schedule("constant"))
    assert tiny.same_bits(
        train_in_memory(still, datasets, start=first.state).model.state_dict(), first.model.state_dict()
    )
    assert not tiny.same_bits(second.model.state_dict(), first.model.state_dict())
    steps = [tensor for name, tensor in second.state.items() if name.endswith(".step")]
    assert steps
    assert all(int(step) == first.steps + second.steps for step in steps), "the optimizer goes on too"


def test_a_loss_that_is_no_number_is_said_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny.recipe(optimizer=Optimizer("sgd", lr=1e30), schedule=tiny.Schedule("constant"), epochs=9.0)
    with pytest.raises(DivergedError, match="the loss or its gradient is not a finite number"):
        train_in_memory(recipe, load(recipe, "train", "val"))
    assert not list(tmp_path.iterdir())
