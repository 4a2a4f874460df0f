"""Every fault is planted in a small network and has to be named; healthy networks of every routing get no alarm.

Without shape checks, which would double the time of these short trainings.
"""

import copy

import pytest
import torch
from torch import nn

import torchcaps as tc
from tests.lab.explanation.tiny import CAPSULES, READS_STATES, TEXT, WITHOUT_CAPSULES
from tests.models import reduced
from tests.support import THOROUGH, script
from torchcaps.lab.diagnosis import CHECKS, diagnose
from torchcaps.lab.diagnosis.diagnosis import Diagnosis
from torchcaps.lab.diagnosis.trials import _read_range
from torchcaps.layers import CapsuleLayer

measured = script("scripts/measure_doctor")
# What else is wrong, and has to be, with a fault of the same kind.
COMPANY = {
    "vanishing-poses": {"even-couplings", "always-active"},  # the copy that tries to learn drives presences up
    "saturated-poses": {"gradient-grows-by-iteration"},  # large votes do both
    "variance-floor": {
        "saturated-poses",
        "even-couplings",
        "no-gradient",
    },  # the copy that tries to learn drives its poses up
    "collapsed-couplings": {"no-gradient"},  # of the prior that makes them collapse
    "oscillating-couplings": {"gradient-grows-by-iteration"},
    "gradient-grows-by-iteration": {"saturated-poses", "exploding-gradient"},  # large votes do all three
    "one-answer": {"cannot-learn-by-heart"},
    "chance": {"one-answer", "loss-at-chance"},
    "loss-at-chance": {"one-answer", "chance"},
}


def names(found: Diagnosis) -> set[str]:
    return {finding.name for finding in found.causes}


@pytest.mark.parametrize("fault", [check.name for check in CHECKS])
def test_a_planted_fault_is_named_and_nothing_else(fault: str):
    found = measured.FAULTS[fault]().diagnose()
    assert fault in names(found), str(found)
    assert names(found) <= {fault} | COMPANY.get(fault, set()), str(found)
    assert f"doctor.html#{fault}" in str(found)
    assert not found.healthy


@pytest.mark.filterwarnings("ignore:fixed-point routing")  # some examples do not converge before any training
@pytest.mark.parametrize("name", measured.list_healthy(trained=False))
def test_a_healthy_network_that_was_not_trained_gets_no_alarm(name: str):
    found = measured.list_healthy(trained=False)[name]().diagnose()
    assert found.healthy, str(found)
    assert sum(any(True for _ in check.values(found.measurements)) for check in CHECKS) >= 16, "most checks applied"


HEALTHY = list(measured.list_healthy(trained=True))


@pytest.mark.parametrize("name", HEALTHY if THOROUGH else HEALTHY[::-2])  # training takes seconds: every other one
def test_a_healthy_trained_network_gets_no_alarm(name: str):
    patient = measured.list_healthy(trained=True)[name]()
    found = diagnose(patient.model, patient.batch, **patient.options, trials=False)
    assert found.healthy, str(found)
    outcome = found.measurements.outcome
    assert outcome is not None
    assert outcome.is_above_chance, "it has learned something"


def test_nothing_changes():
    torch.manual_seed(5)
    patient = measured.Patient(measured.network(), measured.digits(40))
    model = patient.model.eval()
    model.layers[0].requires_grad_(False)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    first = patient.diagnose()
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert patient.diagnose().measurements == first.measurements, "the same every time"


@pytest.mark.parametrize("name", [*CAPSULES, *TEXT])
def test_every_model_can_be_examined(name: str):
    model = reduced.capsule_net(name)
    inputs, classes = reduced.inputs(model, 6), model.classes
    found = diagnose(model, (inputs, torch.arange(6) % classes), trials=False)
    layers = found.measurements.layers
    assert len(layers) == len(model.layers)
    for layer, built in zip(layers, model.layers, strict=True):
        assert isinstance(built, CapsuleLayer)
        assert layer.couplings == built.routing.couples
        iterations = (model.num_iters or built.routing.num_iters) if built.routing.iterates else 0
        assert len(layer.gradients) == iterations
        assert len(layer.entropy) == (max(iterations, 1) if layer.couplings else 0)


def test_a_network_without_capsules_gets_the_checks_that_apply():
    model = reduced.model(WITHOUT_CAPSULES[0])
    found = diagnose(model, (255 * reduced.inputs(model, 6), torch.arange(6) % 4), trials=False)
    assert names(found) == {"input-range"}
    assert found.skipped == (f"capsules: {WITHOUT_CAPSULES[0]} has none",)
    assert found.measurements.parts


def test_hidden_states_of_texts_are_no_images():
    model = reduced.model(READS_STATES[0])
    found = diagnose(model, (100 * reduced.inputs(model, 6), torch.arange(6) % 3), trials=False)
    assert not found.measurements.inputs.is_image
    assert "input-range" not in names(found)


def test_several_labels_of_one_example():
    model = measured.network()
    rows = torch.nn.functional.one_hot(measured.digits(30)[1], 10).float()
    found = diagnose(model, (measured.digits(30)[0], rows))
    assert found.healthy, str(found)
    assert names(diagnose(model, (measured.digits(30)[0], 2 * rows))) == {"labels-out-of-range"}


def test_what_is_wrong_with_the_call_is_said():
    model, (images, labels) = measured.network(), measured.digits(4)
    with pytest.raises(ValueError, match=r"one tensor of shape .* expected \(inputs, labels\)"):
        diagnose(model, images)
    with pytest.raises(ValueError, match="4 inputs and 3 labels"):
        diagnose(model, (images, labels[:3]))
    with pytest.raises(ValueError, match="Flatten has no capsules"):
        diagnose(nn.Flatten(), (images, labels))


def test_a_notebook_shows_the_findings_with_their_remedies():
    found = measured.FAULTS["input-range"]().diagnose()
    shown = found._repr_html_()
    assert "doctor.html#input-range" in shown
    assert "divided by 255" in shown
    assert tc.lab.diagnose is diagnose


def test_rates_are_read_off_the_losses():
    rates = [10.0**power for power in range(-6, 2)]
    assert _read_range(rates, [1.0, 1.0, 1.0, 0.8, 0.4, 0.3, 0.9, 2.0]) == (1e-3, 1e-2), "medians of three neighbors"
    assert _read_range(rates, [1.0] * 8) == (None, None), "nothing happens at any rate"
    assert _read_range(rates, [1.0, 1.0, 1.0]) == (None, 1e-4), "then the loss was not finite"
