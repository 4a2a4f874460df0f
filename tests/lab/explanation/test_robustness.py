import numpy as np
import pytest
import torch

from tests.lab.explanation.tiny import DISTINCT, READS_STATES, any_model, small
from torchcaps.data import ArrayDataset
from torchcaps.lab.explanation.distortions import DISTORTIONS, attack, distort, distorted_loader, lead_of_the_wrong
from torchcaps.lab.explanation.robustness import (
    Robustness,
    clean_note,
    draw_robustness,
    measure_attacks,
    measure_robustness,
    with_scaling,
)
from torchcaps.lab.loaders import ImageLoader
from torchcaps.lab.recipes.base import Transforms
from torchcaps.losses import ClassificationLoss, CrossEntropyLoss, MarginLoss, SpreadLoss
from torchcaps.models import Prediction

LABELS = torch.tensor([0, 1, 2])


def make_loader(images: torch.Tensor, classes: str = "abcd", **transforms) -> ImageLoader:
    dataset = ArrayDataset("noise", "test", tuple(classes), images, torch.arange(len(images)) % 3)
    return ImageLoader(dataset, Transforms(**transforms))


@pytest.mark.parametrize("kind", DISTORTIONS)
def test_distortions_rest_where_they_say(kind: str) -> None:
    images = torch.rand(2, 1, 12, 10)
    distortion = DISTORTIONS[kind]
    assert distortion.rest in distortion.amounts
    assert torch.equal(distort(images, kind, distortion.rest), images)
    torch.testing.assert_close(distortion.change(images, distortion.rest), images, atol=1e-5, rtol=0)
    moved = distort(images, kind, distortion.amounts[-1])
    assert moved.shape == images.shape
    assert not torch.allclose(moved, images, atol=1e-2)
    assert float(moved.min()) >= 0
    assert float(moved.max()) <= 1
    assert torch.equal(moved, distort(images, kind, distortion.amounts[-1]))


def test_a_turn_by_a_right_angle() -> None:
    image = torch.rand(1, 1, 8, 8)
    torch.testing.assert_close(distort(image, "rotation", 90.0), image.rot90(1, (2, 3)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["rotation", "shear", "scale", "translation"])
def test_a_bright_background_stays(kind: str) -> None:
    for amount in DISTORTIONS[kind].amounts:
        torch.testing.assert_close(distort(torch.full((2, 1, 9, 9), 0.7), kind, amount), torch.full((2, 1, 9, 9), 0.7))


def test_images_are_moved_by_as_much_in_all_directions() -> None:
    images = torch.zeros(40, 1, 24, 24)
    images[:, :, 10:14, 10:14] = 1.0
    moved = distort(images, "translation", 0.25)
    where = torch.arange(24.0) - 11.5
    down, right = ((moved.sum(axis) * where).sum((1, 2)) / 16 for axis in (-1, -2))
    torch.testing.assert_close(torch.hypot(down, right), torch.full((40,), 6.0), rtol=0.0, atol=0.05)
    quarters = {(bool(d > 0), bool(r > 0)) for d, r in zip(down, right, strict=True)}
    assert len(quarters) == 4


def test_images_are_distorted_before_they_are_scaled() -> None:
    loader = make_loader(torch.rand(3, 1, 8, 8), standardize=True)
    changed = distorted_loader(loader, lambda images: distort(images, "occlusion", 0.25))
    inputs = changed.batch(LABELS).inputs[0]
    torch.testing.assert_close(inputs.mean((1, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    assert not torch.allclose(inputs, loader.batch(LABELS).inputs[0])


@pytest.mark.parametrize("method", ["fgsm", "pgd"])
def test_an_attack_stays_in_its_ball_and_lifts_a_wrong_class(method) -> None:
    net, images = small("sabour2017_mnist")
    moved = attack(net, images, LABELS, eps=0.05, method=method, steps=4)
    assert float((moved - images).abs().max()) <= 0.05 + 1e-6
    assert float(moved.min()) >= 0
    assert float(moved.max()) <= 1
    before, after = (lead_of_the_wrong(net(each).logits, LABELS) for each in (images, moved))
    assert (after > before).all()
    assert torch.equal(attack(net, images, LABELS, eps=0.0, method=method), images)
    assert all(parameter.grad is None for parameter in net.parameters())
    with pytest.raises(ValueError, match="eps from 0 up"):
        attack(net, images, LABELS, eps=-1.0)


class Sure(torch.nn.Module):
    """A network that is right by a wide margin: the losses of training are flat around it."""

    def forward(self, images: torch.Tensor) -> Prediction:
        bright = images.flatten(1).mean(-1)
        return Prediction(torch.stack([40 * bright, -40 * bright, -60 * bright], -1))


@pytest.mark.parametrize("loss", [SpreadLoss(0.9), MarginLoss()])
def test_being_right_by_more_than_a_margin_does_not_stop_an_attack(loss: ClassificationLoss) -> None:
    images, label = torch.full((2, 1, 4, 4), 0.5), torch.tensor([0, 0])
    pixels = images.clone().requires_grad_()
    (flat,) = torch.autograd.grad(loss(Sure()(pixels).logits, label), pixels)
    assert not flat.any()
    assert torch.equal(attack(Sure(), images, label, eps=0.1), images - 0.1)


def test_the_lead_of_the_wrong_with_several_classes() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0]])
    assert lead_of_the_wrong(logits, torch.tensor([0, 2])).tolist() == [-1.0, 4.0]
    both = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    assert lead_of_the_wrong(logits, both).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("name", [name for name in DISTINCT if name not in READS_STATES and "cifar100" not in name])
def test_robustness_of_every_network(name: str) -> None:
    model, images = any_model(name)
    loader = make_loader(images, "abc" if name.startswith("heinsen") else "abcd")
    amounts = {"rotation": (0.0, 40.0), "noise": (0.0, 0.5)}
    record = measure_robustness(model, loader, CrossEntropyLoss(), name=name, kinds=tuple(amounts), amounts=amounts)
    assert record.total == 3
    assert record.correct[0][0] == record.correct[1][0] == record.clean
    attacked = measure_attacks(model, loader, CrossEntropyLoss(), name=name, epsilons=(0.0, 0.1), steps=2)
    assert attacked.correct[0][0] == attacked.correct[1][0] == attacked.clean == record.clean
    if name == DISTINCT[0]:
        draw_robustness([record, record])
        draw_robustness([attacked])


def test_attacks_move_pixels_not_what_is_made_of_them() -> None:
    net, images = small("sabour2017_mnist")
    loader = make_loader(images, mean=(0.5, 0.5), std=(0.1, 0.2))
    scaled, image_of = with_scaling(net, loader)
    torch.testing.assert_close(image_of(LABELS), images)
    batch = loader.batch(LABELS).inputs[0]
    torch.testing.assert_close(scaled(images).logits, net(batch).logits)


def test_seeds_of_one_network_are_one_line_at_their_mean() -> None:
    def record(noisy: int) -> Robustness:
        return Robustness("x", ("noise",), ("",), (np.array([0.0, 1.0]),), (np.array([900, noisy]),), 900, 1000)

    figure = draw_robustness([[record(500), record(600), record(700)], record(400)])
    lines = [np.asarray(line.get_ydata()) for line in figure.axes[0].get_lines()]
    np.testing.assert_allclose(lines, [[90.0, 60.0], [90.0, 40.0]])
    shade = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert (shade.y0, shade.y1) == pytest.approx((35.16, 90.0), abs=0.01)  # Student's interval of 50, 60 and 70


def test_notes_say_whether_clean_accuracies_are_equal() -> None:
    def record(clean: int) -> Robustness:
        return Robustness("x", ("noise",), ("",), (np.zeros(1),), (np.array([clean]),), clean, 1000)

    assert "within 1 point" in clean_note([record(950), record(945)])
    assert "5.0 points apart" in clean_note([record(950), record(900)])
    assert "1000 examples, 2 seeds" in clean_note([[record(950), record(900)], record(925)])
    assert "within 1 point" in clean_note([[record(950), record(900)], record(925)])
    with pytest.raises(ValueError, match="the same kinds"):
        draw_robustness([record(950), Robustness("y", (), (), (), (), 1, 2)])
    with pytest.raises(ValueError, match="'rotation' was not measured"):
        record(950).accuracy("rotation")
