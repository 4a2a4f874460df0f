"""Losses by hand, their decisions, and decoders."""

import math

import pytest
import torch

import torchcaps as tc
from torchcaps import losses
from torchcaps.decoders import DeconvolutionDecoder, FullyConnectedDecoder, UpsamplingDecoder, most_active

PRESENCE = torch.tensor([[0.95, 0.3, 0.05], [0.5, 0.2, 0.6]], dtype=torch.float64)
LOGITS = torch.logit(PRESENCE)
LABEL = torch.tensor([0, 2])


def test_margin_loss_is_equation_four() -> None:
    first = 0.0 + 0.5 * (0.3 - 0.1) ** 2 + 0.0
    second = (0.9 - 0.6) ** 2 + 0.5 * ((0.5 - 0.1) ** 2 + (0.2 - 0.1) ** 2)
    found = losses.MarginLoss().per_example(LOGITS, LABEL)
    torch.testing.assert_close(found, torch.tensor([first, second], dtype=torch.float64))
    assert losses.MarginLoss()(LOGITS, LABEL).item() == pytest.approx((first + second) / 2)


def test_margin_loss_with_other_margins_and_on_the_score_itself() -> None:
    loss = losses.MarginLoss(upper=1.0, lower=0.2, absent=0.25, on="score")
    found = loss.per_example(torch.tensor([[0.5, 0.4]]), torch.tensor([[1.0, 0.0]]))
    assert found.item() == pytest.approx(0.5**2 + 0.25 * 0.2**2)


def test_spread_loss_by_hand_and_its_margins() -> None:
    found = losses.SpreadLoss(0.2).per_example(LOGITS, LABEL)
    second = (0.2 - (0.6 - 0.5)) ** 2
    torch.testing.assert_close(found, torch.tensor([0.0, second], dtype=torch.float64))
    loss = losses.SpreadLoss()
    assert loss.margin_at(0) == pytest.approx(0.2 + 0.79 / (1 + math.exp(4)))
    assert loss.margin_at(10**9) == pytest.approx(0.2 + 0.79 / (1 + math.exp(-10)))
    assert losses.SpreadLoss(steps=100).margin_at(50) == pytest.approx(0.55)
    late, early = loss(LOGITS, LABEL, step=400_000), loss(LOGITS, LABEL, step=0)
    assert late > early


def test_cross_entropies_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5]], dtype=torch.float64)
    total = sum(math.exp(x) for x in (1.0, 2.0, 0.5))
    assert losses.CrossEntropyLoss()(logits, torch.tensor([1])).item() == pytest.approx(math.log(total) - 2.0)
    mixed = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
    expected = math.log(total) - 0.25 - 1.5
    assert losses.CrossEntropyLoss()(logits, mixed).item() == pytest.approx(expected)
    there = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    by_hand = -(torch.where(there.bool(), PRESENCE, 1 - PRESENCE).log().sum(-1)).mean()
    torch.testing.assert_close(losses.BinaryCrossEntropyLoss()(LOGITS, there), by_hand)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_gradients_are_right_and_short_types_are_widened(name: str) -> None:
    loss = losses.LOSSES[name]()
    logits = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, torch.tensor([0, 1, 2, 4])), logits)
    assert loss(logits.detach().bfloat16(), torch.tensor([0, 1, 2, 4])).dtype == torch.float32


def test_decisions() -> None:
    two = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    one = losses.MarginLoss()
    assert one.correct(LOGITS, LABEL).tolist() == [True, True]
    both = losses.MarginLoss(decision="two_most_active")
    assert both.correct(LOGITS, two).tolist() == [True, True]
    assert both.correct(LOGITS, LABEL).tolist() == [False, False]
    above = losses.BinaryCrossEntropyLoss(threshold=0.4)
    assert above.decide(LOGITS).tolist() == [[True, False, False], [True, False, True]]
    assert above.correct(LOGITS, two).tolist() == [False, True]


def test_reconstruction_loss_is_a_sum_over_pixels_and_a_mean_over_images() -> None:
    decoded, image = torch.rand(3, 2, 5, 4), torch.rand(3, 2, 5, 4)
    by_hand = sum(((d - i) ** 2).sum().item() for d, i in zip(decoded, image, strict=True)) * 0.0005 / 3
    assert losses.reconstruction_loss(decoded, image).item() == pytest.approx(by_hand, rel=1e-5)


def capsules() -> tc.Capsules:
    generator = torch.Generator().manual_seed(0)
    return tc.Capsules(torch.randn(2, 4, 6, generator=generator), torch.randn(2, 4, generator=generator))


DECODERS = {
    "fully connected": lambda: FullyConnectedDecoder(4, 6, (2, 8, 16), hidden=(7, 9)),
    "deconvolution": lambda: DeconvolutionDecoder(4, 6, (2, 8, 16), width=8),
    "upsampling": lambda: UpsamplingDecoder(4, 6, (2, 8, 16), widths=(3, 5, 4)),
}


@pytest.mark.parametrize("kind", DECODERS)
def test_only_the_chosen_capsule_is_decoded(kind: str) -> None:
    torch.manual_seed(0)
    decoder = DECODERS[kind]().eval()
    found = capsules()
    chosen = torch.tensor([2, 0])
    decoded = decoder(found, chosen)
    assert decoded.shape == (2, 2, 8, 16)
    assert ((decoded > 0) & (decoded < 1)).all()
    mask = torch.zeros(2, 4, 1)
    mask[0, 2] = mask[1, 0] = 1.0
    others = tc.Capsules(torch.where(mask.bool(), found.pose, torch.randn(2, 4, 6)), found.score)
    assert torch.equal(decoder(others, chosen), decoded)
    assert not torch.allclose(decoder(found, torch.tensor([1, 1])), decoded)


@pytest.mark.parametrize("kind", DECODERS)
def test_most_active_is_drawn_by_default_and_several_one_by_one(kind: str) -> None:
    torch.manual_seed(0)
    decoder = DECODERS[kind]().eval()
    found = capsules()
    assert found.score is not None
    best = most_active(found, 2)
    assert torch.equal(best[:, 0], found.score.argmax(-1))
    both = decoder(found, best)
    assert both.shape == (2, 2, 2, 8, 16)
    torch.testing.assert_close(decoder(found), both[:, 0])
    torch.testing.assert_close(decoder(found, best[:, 1]), both[:, 1])


def test_a_fully_connected_decoder_sees_which_class_it_draws() -> None:
    torch.manual_seed(0)
    decoder = FullyConnectedDecoder(4, 6, (1, 4, 4))
    alike = tc.Capsules(torch.ones(1, 4, 6), torch.zeros(1, 4))
    assert not torch.allclose(decoder(alike, torch.tensor([0])), decoder(alike, torch.tensor([1])))


def test_drawing_through_a_model() -> None:
    model = tc.models.create("sabour2017_multimnist", stem_channels=4, primary_caps=2, image_size=20)
    images = torch.rand(2, 1, 20, 20)
    labels = torch.tensor([[1, 7], [0, 3]])
    assert model(images, decode=labels).reconstruction.shape == (2, 2, 1, 20, 20)
    assert torch.equal(
        model(images, decode="most_active").reconstruction,
        model(images, decode=model(images).logits.argmax(-1)).reconstruction,
    )
