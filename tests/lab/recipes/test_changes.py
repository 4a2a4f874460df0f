"""A routing brings the loss that suits it, from the command line and from Python."""

import dataclasses

import pytest
import torch

import torchcaps.lab.recipes as recipes
import torchcaps.models as models
from tests.support import THOROUGH
from torchcaps.losses import LOSSES, BinaryCrossEntropyLoss, MarginLoss
from torchcaps.routing import ROUTINGS, Routing


def with_routing(name: str, routing: str, *more: str) -> tuple[recipes.AnyRecipe, list[str]]:
    said: list[str] = []
    return recipes.configure(name, "laptop", ["--model.routing", routing, *more], said.append), said


def test_every_routing_names_losses_that_there_are():
    for routing in ROUTINGS.values():
        assert routing.suited_losses
        assert set(routing.suited_losses) <= set(LOSSES)
        assert any(LOSSES[name].multi_label for name in routing.suited_losses), "one of them for several classes"


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_quickstart_takes_the_loss_of_its_routing_and_says_so(routing: str):
    recipe, said = with_routing("quickstart", routing)
    own = recipes.get("quickstart", "laptop")
    kind = ROUTINGS[routing].suited_losses[0]
    assert recipe.loss == dataclasses.replace(own.loss, kind=kind)
    line = f"loss margin → {kind}, which suits {routing} routing; --loss.kind margin keeps the recipe's own"
    assert said == ([] if kind == own.loss.kind else [line])


@pytest.mark.parametrize("named", [["--loss.kind", "margin"], ["--loss.kind=margin"]])
def test_a_loss_that_the_user_names_stays(named: list[str]):
    recipe, said = with_routing("quickstart", "em", *named)
    assert recipe.loss.kind == "margin"
    (line,) = said
    assert line.startswith("loss margin, as asked for; em routing may not learn from it: leave out --loss.kind")
    assert with_routing("quickstart", "em", "--loss.kind", "spread")[0].loss.kind == "spread"


def test_a_loss_that_a_routing_learns_from_stays():
    for routing in ROUTINGS:
        assert with_routing("comparison/mnist-sample", routing)[0].loss.kind == "cross_entropy", "one loss for all"
    assert recipes.get("zhao2020/affnist-dynamic").loss.kind == "cross_entropy", "as the paper compares"
    assert recipes.get("tsai2020/cifar10-em").loss.kind == "spread"


def test_several_labels_keep_a_loss_for_several():
    for routing, kind in (("em", "binary_cross_entropy"), ("dynamic", "margin")):
        recipe, _ = with_routing("zhao2020/multimnist", routing)
        assert (recipe.loss.kind, recipe.loss.on, recipe.loss.decision) == (kind, "presence", "two_most_active")
        recipes.build_loss(recipe)
    own = recipes.get("zhao2020/multimnist", "laptop")
    assert with_routing("zhao2020/multimnist", "fm")[0] == own


@pytest.mark.parametrize("name", recipes.list())
def test_every_recipe_with_a_routing_takes_a_suited_loss(name: str):
    own = recipes.get(name, "smoke")
    if not hasattr(own.model, "routing"):
        return
    alike = {kind.suited_losses: routing for routing, kind in ROUTINGS.items()}  # one of those that want the same
    for routing in ROUTINGS if THOROUGH else {own.model.routing, *alike.values()}:
        after = recipes.configure(name, "smoke", ["--model.routing", routing])
        suited = ROUTINGS[routing].suited_losses
        assert after.loss == own.loss if routing == own.model.routing else after.loss.kind in suited
        recipes.build_loss(after)


def test_changes_from_python_do_the_same():
    own = recipes.get("quickstart")
    assert recipes.change(own, {"model.routing": "fm"}).loss.kind == "cross_entropy"
    assert recipes.change(own, {"model.routing": "fm", "loss.kind": "margin"}).loss.kind == "margin"
    assert recipes.change(own, {"model.channels": 3}).loss == own.loss


def test_a_model_makes_the_loss_that_suits_it():
    small = {"stem_channels": 4, "primary_caps": 2, "decoder": False}
    for routing, kind in ROUTINGS.items():
        model = models.create("sabour2017_mnist", routing=routing, **small)
        assert isinstance(model, models.CapsuleNet)
        by_length = kind.suited_losses[0] == "margin"
        assert type(model.suited_loss()) is LOSSES[kind.suited_losses[0]]
        several = model.suited_loss(multi_label=True)
        assert isinstance(several, MarginLoss if by_length else BinaryCrossEntropyLoss)
        assert several.decision == "threshold"


def test_a_routing_of_ones_own_brings_its_loss(monkeypatch: pytest.MonkeyPatch):
    class Mine(Routing):
        suited_losses = ("spread",)

    monkeypatch.setitem(ROUTINGS, "mine", Mine)
    assert recipes.change(recipes.get("quickstart"), {"model.routing": "mine"}).loss.kind == "spread"


def test_narrow_em_learns_from_its_loss():
    """Two dozen steps on one batch of digits: the loss that EM brings falls, the margin loss stays where it was."""
    recipe = recipes.configure("quickstart", "smoke", ["--model.routing", "em", "--loss.reconstruction", "0"])
    model, loss = recipes.build_model(recipe), recipes.build_loss(recipe)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    from torchcaps.data import load

    batch = load("mnist_sample", "train").batch(torch.arange(20))
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        value = loss(model(batch.image).logits, batch.label)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.7 * losses[0]
