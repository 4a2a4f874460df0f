"""A training warns once of what cheap checks find, and is the same without them."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from tests.lab.training import tiny
from tests.support import script
from torchcaps.lab.diagnosis import watching
from torchcaps.lab.diagnosis.subject import as_batch, suited_loss
from torchcaps.lab.diagnosis.watching import Watch
from torchcaps.lab.recipes import Loss, Transforms
from torchcaps.lab.training import TrainOptions, train
from torchcaps.losses import CrossEntropyLoss, MarginLoss

measured = script("scripts/measure_doctor")
Trained = Callable[..., tuple[list[str], dict[str, torch.Tensor]]]


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    """Trains the tiny recipe with changes: its warnings, and its weights."""

    def run(name: str = "run", doctor: bool = True, **changes):
        log = io.StringIO()
        options = TrainOptions(doctor=doctor)
        recipe = tiny.recipe(**changes)
        train(recipe, tmp_path / name, console=Console(file=log, width=2000), options=options)
        said = [line for line in log.getvalue().splitlines() if line.startswith("warning: ")]
        return said, tiny.weights(tmp_path / name)

    return run


def test_a_healthy_training_is_silent_and_the_same_bits(trained: Trained, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watching, "SETTLED", 4)  # so that capsules are looked at too
    quiet, looked = trained("looked")
    _, plain = trained("plain", doctor=False)
    assert [line for line in quiet if "torchcaps doctor" in line] == []
    assert tiny.same_bits(looked, plain)


def test_inputs_in_the_wrong_range_are_warned_of_once_with_the_remedy(trained: Trained):
    bytes_again = Transforms(mean=(0.0,), std=(1 / 255,))
    said, looked = trained("looked", transforms=bytes_again)
    (warning,) = [line for line in said if "input-range" in line]
    assert "bytes are divided by 255" in warning
    assert "doctor.html#input-range" in warning
    silent, plain = trained("plain", doctor=False, transforms=bytes_again)
    assert silent == []
    assert tiny.same_bits(looked, plain), "a warning changes nothing"


def test_a_reconstruction_that_drowns_the_classes_is_warned_of(trained: Trained):
    with_decoder = replace(tiny.MODEL, decoder=True, decoder_widths=(8, 8))
    said, _ = trained(model=with_decoder, loss=Loss("margin", reconstruction=0.5), epochs=0.2)
    assert sum("reconstruction-drowns" in line for line in said) == 1


def test_batch_norm_sees_the_examples_of_one_forward_pass():
    model, said = measured.network(), []
    batch = as_batch(model, measured.digits(4))
    Watch(model, MarginLoss(), classes=10, examples=1, warn=said.append).look(0, batch)
    assert "batch-norm-of-one" in said[0]


def test_capsules_are_looked_at_after_a_hundred_steps():
    model, said = measured._biased(measured.network(), -20.0), []
    watch = Watch(model, MarginLoss(), classes=10, examples=8, warn=said.append)
    batch = as_batch(model, measured.digits(8))
    state = torch.get_rng_state()
    for step in (*range(3), 99, 100, 101, 102):
        watch.look(step, batch)
        assert bool(said) == (step >= 100)
    assert len(said) == 1
    assert "dead-capsules: primary capsules 0" in said[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_a_resumed_training_looks_at_its_first_batch_only_if_it_is_early():
    model, said = measured.network(), []
    images, labels = measured.digits(8)
    late, early = (Watch(model, CrossEntropyLoss(), classes=10, examples=8, warn=said.append) for _ in range(2))
    late.look(500, as_batch(model, (255 * images, labels)))
    assert said == []
    early.look(50, as_batch(model, (255 * images, labels)))
    assert len(said) == 1


@pytest.mark.parametrize("name", measured.ROUTINGS)
def test_no_routing_is_warned_of_for_nothing(name: str):
    model, said = measured.train(measured.network(name), 20), []
    batch = as_batch(model, measured.digits(32))
    watch = Watch(model, suited_loss(model, batch.label), classes=10, examples=32, warn=said.append)
    watch.look(0, batch)
    watch.look(100, batch)
    assert said == []
