"""Augmentations of what is drawn on black: how far they go, that nothing is lost, and what they refuse."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from torchcaps.data import augmentation as A


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def drawn(count: int = 200, rows: int = 20, columns: int = 18) -> Tensor:
    """A patch of numbers off the middle: margins of 4 and 9 rows, of 5 and 7 columns."""
    images = torch.zeros(count, 2, rows, columns)
    images[:, :, 4:11, 5:11] = 0.5 + torch.rand(count, 2, 7, 6, generator=seeded(9))
    return images


RANDOM: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "rotate": lambda images, generator: A.rotate_some(images, degrees=30.0, generator=generator),
    "shift": lambda images, generator: A.shift_in_margins(images, generator=generator),
    "squish": lambda images, generator: A.squish(images, most=0.25, generator=generator),
    "erase": lambda images, generator: A.erase(images, side=4, generator=generator),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_generator_decides_and_the_images_stay(name: str) -> None:
    images = drawn(6)
    before, state = images.clone(), torch.get_rng_state()
    first, again, other = (RANDOM[name](images, seeded(seed)) for seed in (1, 1, 2))
    assert first.shape == images.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert RANDOM[name](images.to("meta"), seeded()).device.type == "meta"


@pytest.mark.parametrize("amounts", ["uniform", "normal"])
def test_shifts_use_all_of_the_margins_and_no_more(amounts: A.Amounts) -> None:
    images = drawn(4000)
    moved = A.shift_in_margins(images, generator=seeded(), amounts=amounts)
    assert torch.equal(moved.flatten(2).sort(-1).values, images.flatten(2).sort(-1).values), (
        "every pixel is still there"
    )
    there = moved[:, 0] > 0
    top = there.any(2).int().argmax(1)
    left = there.any(1).int().argmax(1)
    assert (there.flatten(1).sum(1) == 42).all()
    assert torch.equal(moved[0, 0, top[0] : top[0] + 7, left[0] : left[0] + 6], images[0, 0, 4:11, 5:11])
    assert (top.min(), top.max()) == (0, 13)
    assert (left.min(), left.max()) == (0, 12)
    near = ((top - 4).abs() <= 1).float().mean()
    assert near > (0.4 if amounts == "normal" else 0.2)
    assert near < (0.7 if amounts == "normal" else 0.35)


def test_an_empty_image_stays_empty() -> None:
    blank = torch.zeros(3, 1, 12, 12)
    for change in RANDOM.values():
        assert not change(blank, seeded()).any()


def test_the_share_of_rotated_images() -> None:
    images = drawn(1000)
    for share in (0.0, 0.5, 1.0):
        turned = A.rotate_some(images, degrees=30.0, share=share, generator=seeded())
        changed = (turned != images).flatten(1).any(1).float().mean().item()
        assert abs(changed - share) < 0.05


def test_squished_images_are_narrower_and_as_high() -> None:
    images = torch.zeros(500, 1, 20, 20)
    images[..., 2:18, 2:18] = 1.0
    found = A.squish(images, most=0.25, generator=seeded())
    rows = found[:, 0].sum(2)
    width = found[:, 0, 10].sum(1)
    assert torch.allclose(rows[:, 2:18], width[:, None].expand(-1, 16), atol=1e-3)
    assert (rows[:, [0, 1, 18, 19]] == 0).all()
    fewer = 20 - 20 * width / 16
    assert 0.9 < fewer.min() < 1.1
    assert 4.9 < fewer.max() < 5.1, "a quarter of 20 at most"


def test_an_erased_square_is_black_and_inside() -> None:
    found = A.erase(torch.ones(2000, 2, 28, 28), side=4, generator=seeded())
    black = found == 0
    assert (black.flatten(1).sum(1) == 2 * 16).all()
    ever = black.any(0).any(0)
    assert not ever[:4].any()
    assert not ever[26:].any()
    assert ever[4:26, 4:26].all()


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("0 to 1; got 1.5", lambda: A.rotate_some(drawn(1), degrees=3.0, share=1.5, generator=seeded())),
        ("0 to below 1; got 1.0", lambda: A.squish(drawn(1), most=1.0, generator=seeded())),
        ("1 to 7 pixels; got 8", lambda: A.erase(drawn(1), side=8, generator=seeded())),
        ("1 to 7 pixels; got 0", lambda: A.erase(drawn(1), side=0, generator=seeded())),
    ],
)
def test_what_makes_no_sense_is_refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call()
