"""Every recipe takes two steps at its smallest scale, on what ships with the package, and its weights move."""

import pytest
import torch
from torch import Tensor

import torchcaps.data as data
import torchcaps.recipes as recipes
from torchcaps.losses import reconstruction_loss
from torchcaps.models.heinsen2019 import SentenceConfig
from torchcaps.recipes import AnyRecipe
from torchcaps.recipes.fitting import first_split


def batch(recipe: AnyRecipe, step: int) -> tuple[Tensor, Tensor]:
    """What a step is given: images as the model wants them, or hidden states made up where no language model ships."""
    indices = torch.arange(recipe.batch_size) + step * recipe.batch_size
    if isinstance(recipe.model, SentenceConfig):
        draw = torch.Generator().manual_seed(step)
        states = torch.randn(recipe.batch_size, 5, recipe.model.depth, recipe.model.embedding, generator=draw)
        return states, indices % recipe.model.classes
    examples = data.load(recipe.data.train, first_split(recipe.data.train))
    image, label, _ = examples.batch(indices)
    prepare = recipe.prepare
    if prepare.resize is not None:
        image = torch.nn.functional.interpolate(image, (prepare.resize, prepare.resize), mode="bilinear")
    if prepare.crop is not None:
        image = image[..., : prepare.crop, : prepare.crop]
    return image, label


def two_steps(recipe: AnyRecipe) -> list[float]:
    model, loss = recipes.build_model(recipe), recipes.build_loss(recipe)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        inputs, target = batch(recipe, step)
        draw = {}
        if recipe.loss.reconstruction:
            draw = {"draw": target if target.ndim == 1 else target.topk(2).indices[:, 0]}
        prediction = model(inputs, **draw)
        value = loss(prediction.logits, target, step)
        if prediction.drawn is not None:
            value = value + reconstruction_loss(prediction.drawn, inputs, recipe.loss.reconstruction)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    moved = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2
    return losses


@pytest.mark.parametrize("name", recipes.list())
def test_two_steps(name: str):
    recipe = recipes.get(name, "smoke")
    assert recipe.data.limit is not None
    assert recipe.data.limit >= 2 * recipe.batch_size
    assert all(torch.tensor(two_steps(recipe)).isfinite())


@pytest.mark.parametrize("name", [name for name in recipes.list() if "sst" not in name])
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
    three = recipes.build_model(recipes.changed(recipe, {"seed": 1}))
    weights = [next(model.parameters()) for model in (one, two, three)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("routing", ["dynamic", "em", "heinsen", "inverted_attention", "fm"])
def test_own_images_take_any_routing(routing: str):
    recipe = recipes.configure("own/images", "smoke", ["--model.routing", routing])
    assert all(torch.tensor(two_steps(recipe)).isfinite())
