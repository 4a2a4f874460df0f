import numpy as np
import pytest
import torch

from tests.lab.explanation.tiny import CAPSULES, small
from torchcaps.data import ArrayDataset
from torchcaps.data.base import choose_evenly
from torchcaps.lab.explanation.convergence import (
    Changes,
    accuracy_by_iterations,
    collect_retrained,
    draw_changes,
    draw_iteration_accuracy,
    draw_vote_distances,
    measure_changes,
    measure_vote_distances,
)
from torchcaps.lab.explanation.figures import render
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes.base import Transforms
from torchcaps.lab.tracing.traces import trace
from torchcaps.losses import CrossEntropyLoss

ITERATING = [name for name in CAPSULES if any(layer.routing.iterates for layer in small(name)[0].layers)]  # pyright: ignore


@pytest.mark.parametrize("name", ITERATING)
def test_changes_of_every_network(name: str) -> None:
    net, images = small(name)
    record = measure_changes(net, images, num_iters=3)
    assert record.logits.shape == record.coupling.shape == (len(net.layers), 2)
    assert (record.logits >= 0).all()
    assert np.isfinite(record.logits).all()
    draw_changes(record)


def test_changes_are_those_of_the_logits() -> None:
    """Dynamic routing adds the agreement with the parent to its logits: what is left after taking away the mean."""
    net, images = small("sabour2017_mnist")
    with torch.no_grad():
        net.get_parameter("layers.0.weight").mul_(100.0)  # so that there is something to change
    record = measure_changes(net, images, num_iters=2)
    [layer] = trace(net, images)
    added = layer.votes[0].agreement(layer.iterations[0].pose)
    added = added - added.mean(-1, keepdim=True)
    assert record.logits[0, 0] == pytest.approx(added.abs().mean().item(), rel=1e-3)


def test_nothing_changes_where_nothing_iterates() -> None:
    net, images = small("zhao2020_affnist")
    with pytest.raises(ValueError, match="no routing that iterates"):
        measure_changes(net, images)


@pytest.mark.parametrize("name", CAPSULES)
@torch.no_grad()
def test_vote_distances_of_every_network(name: str) -> None:
    net, images = small(name)
    record = measure_vote_distances(net, images, torch.tensor([0, 1, 2]), bins=7)
    last = trace(net, images)[-1]
    presence = last.as_votes_see(last.presence)[:, 0].unsqueeze(-1)
    for t in range(len(last.iterations)):
        weight = (last.couplings(t)[:, 0] * presence).sum(1).numpy()
        np.testing.assert_allclose(record.histogram[:, t].sum(-1) + record.beyond[:, t], weight, rtol=1e-3, atol=1e-4)
    numbers, weight = last.votes[-1].tensor(), last.couplings()[:, 0] * presence
    mean = (weight.unsqueeze(-1) * numbers).sum(1, keepdim=True) / weight.sum(1, keepdim=True).unsqueeze(-1).clamp_min(
        1e-30
    )
    distance = (numbers - mean).square().sum(-1)
    expected = (weight * distance).sum(1) / weight.sum(1).clamp_min(1e-30)
    np.testing.assert_allclose(record.mean[:, -1], expected.numpy(), rtol=2e-3, atol=1e-4)
    draw_vote_distances(record, example=1)


def test_accuracy_by_iterations_counts_as_the_network_does() -> None:
    net, images = small("sabour2017_mnist")
    labels = net(images).logits.argmax(-1)
    labels[0] = (labels[0] + 1) % 4
    loader = ImageLoader(ArrayDataset("noise", "test", tuple("abcd"), images, labels), Transforms())
    record = accuracy_by_iterations(net, loader, CrossEntropyLoss(), (1, 2, 4))
    assert record.trained_with == 2
    assert record.correct[1] == 2
    assert record.total.tolist() == [3, 3, 3]
    again = collect_retrained("others", [(3, 90, 100), (1, 80, 100)])
    assert again.iterations.tolist() == [1, 3]
    assert again.accuracy.tolist() == [0.8, 0.9]
    draw_iteration_accuracy([record, again])


def test_examples_are_taken_evenly() -> None:
    assert choose_evenly(5, 3).tolist() == [0, 1, 2]
    assert choose_evenly(5, 10).tolist() == [0, 2, 4, 6, 9]


@pytest.mark.parametrize("factor", [1.5, 100.0])
def test_logarithmic_axes_have_plain_numbers(factor: float) -> None:
    values = np.array([[0.012, 0.012 * factor]])
    figure = draw_changes(Changes(values, values, ("dynamic",), 4))
    render(figure, "png")  # ticks are made when the figure is
    for panel in figure.axes:
        labels = [tick.get_text() for which in ("major", "minor") for tick in panel.get_yticklabels(which=which)]
        shown = [text for text in labels if text]
        assert shown
        assert all(float(text) > 0 for text in shown)
