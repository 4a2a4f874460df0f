"""Batched transforms: what they do to pixels, that they obey their generator, and what they refuse."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from torchcaps.data import transforms as T


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(count: int = 8, channels: int = 2, rows: int = 9, columns: int = 7) -> Tensor:
    return torch.rand(count, channels, rows, columns, generator=seeded(9))


RANDOM: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "pad_and_crop": lambda images, generator: T.pad_and_crop(images, padding=3, generator=generator),
    "shift": lambda images, generator: T.shift(images, reach=2, generator=generator),
    "flip": lambda images, generator: T.flip(images, generator=generator),
    "affine": lambda images, generator: T.affine(images, generator=generator),
    "jitter": lambda images, generator: T.jitter(images, generator=generator),
    "mixup": lambda images, generator: T.mixup(
        images, torch.arange(len(images)) % 3, num_classes=3, generator=generator
    )[0],
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_seed_same_result(name: str, dtype: torch.dtype) -> None:
    images = pictures().to(dtype)
    before = images.clone()
    state = torch.get_rng_state()
    first, again, other = (RANDOM[name](images, seeded(seed)) for seed in (1, 1, 2))
    assert first.shape == images.shape
    assert first.dtype == dtype
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before), "the input was changed"
    assert torch.equal(torch.get_rng_state(), state), "the global generator was used"


@pytest.mark.parametrize("name", RANDOM)
def test_shapes_follow_on_another_device(name: str) -> None:
    # The meta device has shapes but no numbers: an operation that mixed devices would fail on it.
    if name != "mixup":
        assert RANDOM[name](pictures().to("meta"), seeded()).device.type == "meta"


@given(padding=st.integers(0, 5), seed=st.integers(0, 100), fill=st.sampled_from(["zeros", "edge"]))
@settings(max_examples=30, deadline=None)
def test_pad_and_crop_is_a_window_of_the_padded_image(padding: int, seed: int, fill: T.Fill) -> None:
    images = pictures(3)
    result = T.pad_and_crop(images, padding=padding, generator=seeded(seed), fill=fill)
    mode = "constant" if fill == "zeros" else "replicate"
    padded = torch.nn.functional.pad(images, [padding] * 4, mode=mode)
    for k in range(3):
        found = [
            torch.equal(result[k], padded[k, :, i : i + 9, j : j + 7])
            for i in range(2 * padding + 1)
            for j in range(2 * padding + 1)
        ]
        assert any(found)


def test_crop_to_another_size() -> None:
    result = T.pad_and_crop(pictures(), padding=0, size=(5, 4), generator=seeded())
    assert result.shape == (8, 2, 5, 4)
    with pytest.raises(ValueError, match="20×20 is larger than the padded 11×9"):
        T.pad_and_crop(pictures(), padding=1, size=(20, 20), generator=seeded())
    with pytest.raises(ValueError, match="5×8 does not fit into images of 9×7"):
        T.crop(pictures(), torch.zeros(8, dtype=torch.int64), torch.zeros(8, dtype=torch.int64), (5, 8))


def test_shift_reaches_every_place_evenly() -> None:
    images = torch.zeros(20_000, 1, 5, 5)
    images[:, :, 2, 2] = 1.0
    where = T.shift(images, reach=2, generator=seeded()).flatten(1).argmax(1)
    counts = torch.bincount(where, minlength=25)
    assert (counts - 800).abs().max() < 5 * 28


def test_flip_mirrors_about_half() -> None:
    images = pictures(4000, 1, 2, 3)
    result = T.flip(images, generator=seeded())
    mirrored = (result == images.flip(-1)).flatten(1).all(1)
    assert ((result == images).flatten(1).all(1) ^ mirrored).all()
    assert abs(float(mirrored.float().mean()) - 0.5) < 0.04
    assert torch.equal(T.flip(images, generator=seeded(), probability=0.0), images)
    assert torch.equal(T.flip(images, generator=seeded(), probability=1.0), images.flip(-1))


@pytest.mark.parametrize(("angle", "turns"), [(0.0, 0), (90.0, 1), (180.0, 2), (-90.0, -1)])
def test_warp_by_quarter_turns_is_rot90(angle: float, turns: int) -> None:
    images = pictures(2, 3, 8, 8).double()
    maps = T.linear_maps(torch.full((2,), angle).double(), torch.zeros(2).double(), torch.ones(2, 2).double())
    turned = T.warp(images, maps, torch.zeros(2, 2).double())
    torch.testing.assert_close(turned, images.rot90(turns, (2, 3)))


def test_warp_translates_scales_and_shears() -> None:
    images = torch.zeros(1, 1, 11, 11)
    images[0, 0, 3, 7] = 1.0  # two rows up, two columns right of the center
    unit = torch.ones(1, 2)
    nothing = torch.zeros(1)
    moved = T.warp(images, T.linear_maps(nothing, nothing, unit), torch.tensor([[1.0, -3.0]]))
    assert moved[0, 0, 4, 4] == pytest.approx(1.0)
    # A shear of one moves what is two rows up by two columns to the right.
    sheared = T.warp(images, T.linear_maps(nothing, torch.ones(1), unit), torch.zeros(1, 2))
    assert sheared[0, 0, 3, 9] == pytest.approx(1.0)
    # Twice as tall and half as wide takes (−2, 2) to (−4, 1).
    scaled = T.warp(images, T.linear_maps(nothing, nothing, torch.tensor([[2.0, 0.5]])), torch.zeros(1, 2))
    assert scaled[0, 0, 1, 6] == pytest.approx(1.0)
    larger = T.warp(images, T.linear_maps(nothing, nothing, unit), torch.zeros(1, 2), size=(15, 13))
    assert larger.shape == (1, 1, 15, 13)
    assert larger[0, 0, 5, 8] == pytest.approx(1.0)


def test_affine_with_ranges_of_nothing_changes_nothing() -> None:
    still = T.AffineRanges(0.0, 0.0, (1.0, 1.0), 0.0)
    torch.testing.assert_close(T.affine(pictures(), generator=seeded(), ranges=still), pictures())
    with pytest.raises(ValueError, match="scale goes from"):
        T.affine(pictures(), generator=seeded(), ranges=T.AffineRanges(scale=(0.0, 1.0)))


def test_normalize_and_standardize() -> None:
    images = pictures()
    result = T.normalize(images, mean=(0.1, 0.2), std=(0.5, 2.0))
    torch.testing.assert_close(result[:, 1], (images[:, 1] - 0.2) / 2.0)
    own = T.standardize(images)
    torch.testing.assert_close(own.mean((1, 2, 3)), torch.zeros(8), atol=1e-6, rtol=0)
    torch.testing.assert_close(own.square().mean((1, 2, 3)), torch.ones(8))
    assert torch.equal(T.standardize(torch.full((1, 1, 4, 4), 0.5)), torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="2 channels need as many means and stds; got 1 and 1"):
        T.normalize(images, mean=(0.5,), std=(0.5,))
    with pytest.raises(ValueError, match="above 0"):
        T.normalize(images, mean=(0.5, 0.5), std=(0.5, 0.0))


def test_jitter_is_one_brightness_and_one_contrast_for_each_image() -> None:
    images = pictures(500)
    result = T.jitter(images, generator=seeded(), brightness=0.1, contrast=(0.5, 1.5))
    change = (result - images).mean((2, 3))
    assert change.abs().max() <= 0.1 + 1e-6
    torch.testing.assert_close(change[:, 0], change[:, 1])
    factor = result.std((2, 3)) / images.std((2, 3))
    torch.testing.assert_close(factor[:, 0], factor[:, 1])
    assert 0.5 <= float(factor.min()) < 0.52
    assert 1.48 < float(factor.max()) <= 1.5 + 1e-5


@pytest.mark.usefixtures("unchecked")
def test_images_have_four_axes() -> None:
    for transform in (T.standardize, lambda images: T.shift(images, reach=1, generator=seeded())):
        with pytest.raises(ValueError, match=r"\(n, channel, row, column\); got shape \(3, 4\)"):
            transform(torch.zeros(3, 4))


@pytest.mark.parametrize("per_example", [True, False])
def test_mixture_weights_are_beta(per_example: bool) -> None:
    mixture = T.draw_mixture(20_000, generator=seeded(), per_example=per_example)
    assert torch.equal(mixture.partner.sort().values, torch.arange(20_000))
    weight = mixture.weight
    assert ((weight >= 0) & (weight <= 1)).all()
    if not per_example:
        assert len(weight.unique()) == 1
        return
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)); this one is at home near 0 and 1.
    assert abs(float(weight.mean()) - 0.5) < 0.015
    assert abs(float(weight.var()) - 1 / (4 * 1.4)) < 0.005
    # The distribution function at 0.01 for a = 0.2, by its series: x^a / (a B(a, a)) (1 + a (1−a) x / (1+a) + …).
    beta = torch.lgamma(torch.tensor(0.2)).mul(2).sub(torch.lgamma(torch.tensor(0.4))).exp()
    below = float(0.01**0.2 / (0.2 * beta) * (1 + 0.2 * 0.8 * 0.01 / 1.2))
    assert abs(float((weight < 0.01).float().mean()) - below) < 0.015


def test_mixup_mixes_images_and_labels_alike() -> None:
    images = pictures(50)
    labels = torch.arange(50) % 3
    mixed, soft = T.mixup(images, labels, num_classes=3, generator=seeded(4))
    mixture = T.draw_mixture(50, generator=seeded(4))
    weight = mixture.weight.float()[:, None, None, None]
    torch.testing.assert_close(mixed, weight * images + (1 - weight) * images[mixture.partner])
    torch.testing.assert_close(soft.sum(1), torch.ones(50))
    torch.testing.assert_close(soft[torch.arange(50), labels] >= mixture.weight - 1e-6, torch.ones(50).bool())
    again, _ = T.mixup(images, soft, num_classes=3, generator=seeded(4))  # soft rows are labels too
    assert torch.equal(again, mixed)


def test_mixup_of_embeddings_mixes_masks() -> None:
    embedding = torch.full((6, 5, 2, 4), float("nan"))
    mask = (torch.arange(5) < torch.tensor([1, 2, 3, 4, 5, 5])[:, None]).float()
    embedding[mask > 0] = 1.0
    mixed, soft_mask, soft = T.mixup_embeddings(embedding, mask, torch.arange(6) % 2, num_classes=2, generator=seeded())
    assert soft.shape == (6, 2)
    # What the encoder left in the padding (here: not a number) must not leak; a mixed token is there by its mask.
    torch.testing.assert_close(mixed, soft_mask[:, :, None, None].expand_as(mixed))
    assert ((soft_mask > 0) & (soft_mask < 1)).any()


@pytest.mark.usefixtures("unchecked")
def test_mixup_refuses_what_does_not_fit() -> None:
    images = pictures(4)
    with pytest.raises(ValueError, match="4 images do not go with 3 labels"):
        T.mixup(images, torch.zeros(3, dtype=torch.int64), num_classes=2, generator=seeded())
    with pytest.raises(ValueError, match="from 0 to 1; got 0 to 5"):
        T.mixup(images, torch.tensor([0, 1, 5, 1]), num_classes=2, generator=seeded())
    with pytest.raises(ValueError, match="class numbers"):
        T.mixup(images, torch.zeros(4), num_classes=2, generator=seeded())
    with pytest.raises(ValueError, match="3 numbers do not fit 2 classes"):
        T.mixup(images, torch.zeros(4, 3), num_classes=2, generator=seeded())
    with pytest.raises(ValueError, match="alpha above 0; got -1"):
        T.draw_mixture(4, generator=seeded(), alpha=-1.0)
    with pytest.raises(ValueError, match=r"is \(4, 2\); got \(4, 9\)"):
        T.mixup_embeddings(
            images, torch.ones(4, 9), torch.zeros(4, dtype=torch.int64), num_classes=2, generator=seeded()
        )
