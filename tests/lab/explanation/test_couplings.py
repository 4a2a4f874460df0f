import numpy as np
import pytest
import torch

from tests.lab.explanation.tiny import CAPSULES, TEXT, any_model, small
from torchcaps.lab.explanation.couplings import Couplings, draw_entropy, draw_graph, draw_overlays, measure_couplings
from torchcaps.lab.explanation.figures import save_figure
from torchcaps.lab.explanation.text import draw_token_use, measure_token_use


@pytest.mark.parametrize("name", CAPSULES)
def test_couplings_of_every_network(name: str) -> None:
    net, images = small(name)
    labels = torch.tensor([0, 2, 1])
    record = measure_couplings(net, images, labels)
    total = record.share.sum(-1)
    assert total.max() < 1 + 1e-4
    looked_at = total > 0
    assert looked_at.any()
    if name != "sabour2017_cifar10":  # which has a category of none of the above
        np.testing.assert_allclose(total[looked_at], 1.0, rtol=1e-4)
    flows = [flow.sum((2, 3)) for flow in record.flow]
    for flow in flows[1:]:
        if name != "sabour2017_cifar10":
            np.testing.assert_allclose(flow, flows[0], rtol=1e-4)
    for draw in (draw_overlays, draw_graph):
        figure = draw(record, f"{name} on noise", example=1)
        assert figure.get_suptitle() == f"{name} on noise"
    draw_entropy(record)


def test_a_record_comes_back_from_its_file(tmp_path) -> None:
    net, images = small("hinton2018_smallnorb")
    record = measure_couplings(net, images, torch.eye(4)[:3] + torch.eye(4)[1:], list("abcd"))
    paths = save_figure(draw_entropy(record), tmp_path, "entropy", record)
    assert [path.suffix for path in paths] == [".png", ".svg", ".npz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entropy.npz", "entropy.png", "entropy.svg"]
    again = Couplings.load(tmp_path / "entropy.npz")
    assert again.classes == ("a", "b", "c", "d")
    assert again.extent == record.extent
    assert again.label.tolist() == [[0, 1], [1, 2], [2, 3]]
    for one, other in zip(again.flow, record.flow, strict=True):
        np.testing.assert_array_equal(one, other)


def test_shares_agree_with_the_couplings_of_a_single_layer() -> None:
    net, images = small("sabour2017_mnist")
    record = measure_couplings(net, images)
    even = np.full_like(record.share[:, 0], 1 / 4)
    np.testing.assert_allclose(record.share[:, 0], even, rtol=1e-5)


@pytest.mark.parametrize("name", TEXT)
def test_what_is_used_and_what_is_ignored_is_all(name: str) -> None:
    model, states = any_model(name)
    mask = torch.tensor([True, True, True, False, False])
    record = measure_token_use(model, states[0], ["not", "bad", "!", "", ""], mask=mask)
    assert record.use.shape == (5, 3, record.probability.shape[0])
    np.testing.assert_allclose(record.use[:3].sum(-1), 1.0, rtol=1e-4)
    np.testing.assert_allclose((record.use + record.ignore)[:3], 1.0, rtol=1e-4)
    assert (record.use[3:] == 0).all()
    draw_token_use(record, "a sentence")
    with pytest.raises(ValueError, match="4 tokens for hidden states of 5"):
        measure_token_use(model, states[0], ["a"] * 4)


def test_pictures_are_needed_for_places() -> None:
    model, states = any_model(TEXT[0])
    with pytest.raises(ValueError, match="no grid"):
        measure_couplings(model, states)


def test_class_names_must_be_as_many_as_classes() -> None:
    net, images = small("sabour2017_mnist")
    with pytest.raises(ValueError, match="3 class names for a model of 4"):
        measure_couplings(net, images, classes=["a", "b", "c"])
