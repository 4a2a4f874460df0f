"""Learning rate and momentum against values worked out by hand."""

import math

import pytest
import torch
from torch import nn

from torchcaps.lab.recipes import Optimizer, Schedule
from torchcaps.lab.training.optimizers import (
    Rates,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    rates,
    set_rates,
)

HEINSEN = Schedule("warmup_cosine", warmup=0.1, low=1e-5, momentum_low=0.9 * 0.999)
RADAM = Optimizer("radam", lr=5e-4, momentum=0.999)


@pytest.mark.parametrize(
    ("step", "lr", "momentum"),
    [
        (0, 1e-5, 0.999),
        (5, (1e-5 + 5e-4) / 2, 0.999 * 0.95),  # half way up, on a line
        (10, 5e-4, 0.999 * 0.9),
        (40, 1e-5 + 0.75 * 4.9e-4, 0.999 * (1 - 0.075)),  # a third of the way down: cos 60° is one half
        (55, (1e-5 + 5e-4) / 2, 0.999 * 0.95),  # half way down
        (70, 1e-5 + 0.25 * 4.9e-4, 0.999 * (1 - 0.025)),
        (100, 1e-5, 0.999),
    ],
)
def test_heinsens_regime(step: int, lr: float, momentum: float):
    found = rates(step, 101, HEINSEN, RADAM)
    assert found.lr == pytest.approx(lr, rel=1e-12)
    assert found.momentum == pytest.approx(momentum, rel=1e-12)


def test_momentum_stays_unless_it_is_told_where_to_go():
    assert rates(10, 101, Schedule("warmup_cosine"), RADAM).momentum == 0.999


def test_exponential_decay_ends_at_its_floor():
    schedule, adam = Schedule("exponential", factor=0.97, every=10, smooth=False, floor=5e-5), Optimizer(lr=5e-4)
    found = [rates(step, 10_000, schedule, adam).lr for step in (0, 9, 10, 740, 770, 9_999)]
    assert found == pytest.approx([5e-4, 5e-4, 4.85e-4, 5e-4 * 0.97**74, 5e-5, 5e-5])


def test_exponential_decay_by_a_root_or_all_at_once():
    optimizer = Optimizer(lr=1.0)
    smooth, sudden = (Schedule("exponential", factor=0.96, every=2000, smooth=each) for each in (True, False))
    assert rates(1000, 9, smooth, optimizer).lr == pytest.approx(math.sqrt(0.96))
    assert rates(4000, 9, smooth, optimizer).lr == pytest.approx(0.96**2)
    assert [rates(step, 9, sudden, optimizer).lr for step in (0, 1999, 2000)] == [1.0, 1.0, 0.96]


def test_milestones_are_shares_of_training():
    schedule = Schedule("steps", factor=0.1, milestones=(150 / 350, 250 / 350))
    found = [rates(step, 3500, schedule, Optimizer("sgd", lr=0.1)).lr for step in (0, 1499, 1500, 2499, 2500)]
    assert found == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])


def test_a_training_of_one_step_has_rates():
    assert rates(0, 1, HEINSEN, RADAM) == Rates(1e-5, 0.999)


def test_rates_reach_the_optimizer():
    model = nn.Linear(2, 1)
    adam, sgd = (build_optimizer(model, Optimizer(kind)) for kind in ("adam", "sgd"))
    set_rates(adam, Rates(0.5, 0.7))
    set_rates(sgd, Rates(0.5, 0.7))
    assert (adam.param_groups[0]["lr"], adam.param_groups[0]["betas"]) == (0.5, (0.7, 0.999))
    assert (sgd.param_groups[0]["lr"], sgd.param_groups[0]["momentum"]) == (0.5, 0.7)


@pytest.mark.parametrize("kind", ["adam", "adamw", "radam", "sgd"])
def test_state_goes_to_tensors_and_back(kind):
    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            optimizer.zero_grad()
            model(torch.full((1, 2), float(number))).sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    optimizer = build_optimizer(model, Optimizer(kind, weight_decay=0.1))
    steps(model, optimizer, range(6))
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, model).items()}
    assert saved, "there is a state to save"
    other = nn.Linear(2, 3)
    other.load_state_dict(model.state_dict())
    restored = build_optimizer(other, Optimizer(kind, weight_decay=0.1))
    load_optimizer_tensors(restored, other, saved)
    steps(model, optimizer, range(6, 9))
    steps(other, restored, range(6, 9))
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


def test_weight_decay_of_radam_is_decoupled():
    """Without a gradient, decoupled decay shrinks a weight by lr × decay; the other kind goes through the moments."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = build_optimizer(model, Optimizer("radam", lr=0.1, weight_decay=0.5))
    model.weight.grad = torch.zeros(1, 1)
    optimizer.step()
    assert model.weight.item() == pytest.approx(0.95)


def test_nesterov_is_for_sgd():
    with pytest.raises(ValueError, match=r"nesterov is for sgd; got optimizer.kind='adam'"):
        build_optimizer(nn.Linear(1, 1), Optimizer("adam", nesterov=True))
