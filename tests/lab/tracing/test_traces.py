from math import log

import pytest
import torch

import torchcaps as tc
from tests.lab.explanation.tiny import CAPSULES, WITHOUT_CAPSULES, any_model, small
from tests.models import reduced
from torchcaps.lab.tracing.networks import grid_on_image
from torchcaps.lab.tracing.traces import iterating, trace
from torchcaps.layers import CapsuleLayer, ConvCapsules
from torchcaps.models import CapsuleNet
from torchcaps.routing import rising_inverse_temperature
from torchcaps.routing.fm import agreement_contributions


@pytest.mark.parametrize("name", CAPSULES)
def test_a_trace_ends_where_the_network_ends(name: str) -> None:
    net, images = small(name)
    layers = trace(net, images)
    assert len(layers) == len(net.layers)
    capsules = net(images).capsules
    assert capsules is not None
    torch.testing.assert_close(layers[-1].iterations[-1].pose, capsules.pose, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CAPSULES)
def test_what_is_handed_down_still_sums_to_one(name: str) -> None:
    net, images = small(name)
    for layer in trace(net, images):
        parents = layer.parents.presence.flatten(1).shape[1]
        ones = torch.ones(len(images), parents, 1)
        for iteration in range(len(layer.iterations)):
            share = layer.shares(ones, iteration)[..., 0]
            seen = torch.ones(share.shape[1], dtype=torch.bool)
            if layer.tables is not None:
                types = layer.children.pose.shape[-2]
                seen = (layer.tables.watchers > 0).repeat_interleave(types)
            orphan = getattr(layer.layer.routing, "orphan", False)
            assert (share[:, ~seen] == 0).all()
            if orphan:
                assert (share[:, seen] < 1).all()
            else:
                torch.testing.assert_close(share[:, seen], torch.ones_like(share[:, seen]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CAPSULES)
def test_entropy_is_between_nothing_and_all_and_starts_even(name: str) -> None:
    net, images = small(name)
    for layer in trace(net, images):
        for iteration in range(len(layer.iterations)):
            entropy = layer.entropy(iteration)
            assert entropy.shape == (len(images),)
            assert ((entropy >= 0) & (entropy <= 1 + 1e-5)).all()
        if layer.couples and layer.layer.routing.iterates:
            torch.testing.assert_close(layer.entropy(0), torch.ones(len(images)), rtol=1e-4, atol=1e-4)


def test_entropy_of_couplings_that_are_known() -> None:
    net, images = small("sabour2017_mnist")
    [layer] = trace(net, images)
    coupling = layer.iterations[-1].coupling
    coupling.zero_()
    coupling[..., 0] = 1.0
    torch.testing.assert_close(layer.entropy(), torch.zeros(len(images)))
    coupling[..., :2] = 0.5
    torch.testing.assert_close(layer.entropy(), torch.full((len(images),), log(2) / log(4)))


def test_what_children_add_to_the_agreement_sums_to_the_score() -> None:
    net, images = small("zhao2020_affnist")
    [layer] = trace(net, images)
    added = agreement_contributions(layer.votes[0]).sum(-2)
    torch.testing.assert_close(added, layer.parents.score, rtol=1e-4, atol=1e-4)


def test_children_of_a_map_are_counted_position_by_position() -> None:
    """Heinsen's network goes through its map type by type: what is handed down must come back in our order."""
    net, images = small("heinsen2019_smallnorb")
    first = trace(net, images)[0]
    _, rows, columns, types, _ = first.children.pose.shape
    parents = first.parents.pose.shape[1]
    down = first.shares(torch.eye(parents).expand(len(images), -1, -1))
    coupling = first.iterations[-1].coupling.unflatten(1, (types, rows, columns))
    torch.testing.assert_close(down.unflatten(1, (rows, columns, types)), coupling.permute(0, 2, 3, 1, 4))


def test_what_is_sent_is_what_is_there() -> None:
    net, images = small("tsai2020_diverse_multimnist")
    for layer in trace(net, images):
        mass = torch.rand(layer.presence.shape)
        if isinstance(layer.layer, ConvCapsules):
            assert layer.tables is not None
            mass *= (layer.tables.watchers > 0).repeat_interleave(layer.children.pose.shape[-2])
        torch.testing.assert_close(layer.sent(mass).flatten(1).sum(1), mass.sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sabour2017_mnist", "hinton2018_smallnorb", "tsai2020_cifar10"])
def test_other_numbers_of_iterations_for_a_while(name: str) -> None:
    net, images = small(name)
    before = net(images).logits
    with iterating(net, 4):
        assert all(len(layer.iterations) == 4 for layer in trace(net, images))
    torch.testing.assert_close(net(images).logits, before)
    with pytest.raises(ValueError, match="at least one iteration"), iterating(net, 0):
        pass


def test_no_iterations_where_nothing_iterates() -> None:
    net, _ = small("zhao2020_affnist")
    with pytest.raises(ValueError, match="no routing that iterates"), iterating(net, 2):
        pass


@pytest.mark.parametrize("name", WITHOUT_CAPSULES)
def test_networks_without_capsules_say_so(name: str) -> None:
    model, images = any_model(name)
    with pytest.raises(ValueError, match="no capsules"):
        trace(model, images)


def test_a_module_of_ones_own_says_so() -> None:
    net, images = small("sabour2017_mnist")
    net.layers[0] = torch.nn.Identity()
    with pytest.raises(ValueError, match="of your own"):
        trace(net, images)
    assert not isinstance(net.layers[0], CapsuleLayer)


def test_training_mode_comes_back() -> None:
    net = reduced.capsule_net("zhao2020_affnist").train()
    statistics = {name: buffer.clone() for name, buffer in net.named_buffers()}
    trace(net, reduced.inputs(net, 2))
    assert net.training
    assert all(torch.equal(statistics[name], buffer) for name, buffer in net.named_buffers())


def test_the_grid_lies_where_the_convolutions_look() -> None:
    """CapsNet on 28 pixels: kernels of 9, then 9 with a step of 2: centers at 8, 10, … 18."""
    torch.manual_seed(0)
    net = reduced.tc.models.create("sabour2017_mnist", stem_channels=16, primary_caps=4, decoder=False)
    assert isinstance(net, CapsuleNet)
    grid = grid_on_image(net, torch.rand(1, 1, 28, 28))
    assert grid.shape == (6, 6)
    for start, step in zip(grid.start, grid.step, strict=True):
        assert abs(start - 8) < 1.0
        assert abs(step - 2) < 0.3


def test_more_iterations_extend_every_schedule_alike() -> None:
    """The class layer's λ is a quarter of the others' and goes on rising as theirs does."""
    net = tc.models.create("hinton2018_smallnorb", stem_channels=4, caps=(2, 2, 2), num_iters=2)
    routings = [layer.routing for layer in net.layers]  # pyright: ignore
    with iterating(net, 6):
        first, _, last = (routing.inverse_temperature for routing in routings)
        assert last == pytest.approx([temperature / 4 for temperature in first])
        assert first == pytest.approx(rising_inverse_temperature(6))
    assert routings[-1].inverse_temperature == pytest.approx(rising_inverse_temperature(2, 0.0025))
    for asked, extended in ((0.3, [0.3] * 4), ((0.1, 0.2, 0.3), [0.1, 0.2, 0.3, 0.3]), (None, None)):
        routing = tc.routing.EMRouting(3, inverse_temperature=asked)
        assert routing.temperatures_for(4) == pytest.approx(extended or rising_inverse_temperature(4))
        assert routing.temperatures_for(2) == routing.inverse_temperature[:2]
    assert tc.routing.EMRouting(1, inverse_temperature=0.3).temperatures_for(2) == (0.3, 0.3)


@pytest.mark.parametrize("routing", tc.routing.ROUTINGS)
def test_the_padding_of_a_convolution_is_sent_nothing(routing: str) -> None:
    torch.manual_seed(0)
    couples = tc.routing.resolve(routing).couples
    competition = None if couples else "field"  # without couplings nobody competes beyond a field
    net = torch.nn.Sequential(
        tc.MatrixPrimaryCapsules(1, 2, (2, 2)),
        tc.ConvCapsules(2, (2, 2), 3, (2, 2), (3, 2), 2, routing, padding=(1, 1), competition=competition),
        tc.ClassCapsules(3, (2, 2), 4, (2, 2)),
    )
    layer, _ = trace(net, torch.randn(2, 1, 4, 5))
    ones = torch.ones(2, layer.parents.presence.flatten(1).shape[1], 1)
    share = layer.shares(ones)[..., 0]
    torch.testing.assert_close(share, torch.ones_like(share), rtol=1e-4, atol=1e-4)
    assert layer.sent(layer.presence).flatten(1).sum(-1).allclose(layer.presence.sum(-1), rtol=1e-4)
    assert ((layer.entropy() >= 0) & (layer.entropy() <= 1 + 1e-5)).all()
